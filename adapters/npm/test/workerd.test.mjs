// The package on workerd, the runtime of Cloudflare Workers, loaded as wrangler loads it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import path from "node:path";
import { test } from "node:test";
import { build } from "esbuild";
import { upstash } from "./servers.mjs";

const require = createRequire(new URL("../../../conformance/hosts/cloudflare/package.json", import.meta.url));
const { Miniflare } = await import(require.resolve("miniflare"));

const worker = `
import { Tidegate } from "@tidegate/edge";
let tidegate;
export default {
  async fetch(request, { url, token }) {
    const policy = { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 86_400_000 } }] };
    tidegate ??= new Tidegate({ url, token, platform: "cloudflare", failMode: "closed", policy });
    const verdict = await tidegate.check(request);
    return verdict.response ?? verdict.onto(new Response("hello"));
  },
};`;

test("Cloudflare: a Worker limits several requests by the address from Cloudflare", async (context) => {
  const server = await upstash();
  context.after(() => server.stop());
  const folder = path.dirname(new URL(import.meta.url).pathname);
  const { outputFiles } = await build({
    stdin: { contents: worker, resolveDir: folder },
    bundle: true,
    write: false,
    format: "esm",
    conditions: ["workerd"],
  });
  const miniflare = new Miniflare({
    modules: [{ type: "ESModule", path: "worker.mjs", contents: outputFiles[0].text }],
    compatibilityDate: "2025-06-01",
    bindings: { url: server.url, token: server.token },
    cf: false,
  });
  context.after(() => miniflare.dispose());
  const ask = (address) =>
    miniflare.dispatchFetch("http://example.com/", { headers: { "cf-connecting-ip": address, "x-forwarded-for": String(Math.random()) } });
  const statuses = [];
  for (let nth = 0; nth < 3; nth++) statuses.push((await ask("192.0.2.1")).status);
  assert.deepEqual(statuses, [200, 200, 429]);
  assert.equal((await ask("192.0.2.2")).status, 200);
});
