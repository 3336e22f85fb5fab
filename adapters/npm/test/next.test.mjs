// The example on Next.js 16: a production build with a proxy, served by `next start`.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import path from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { freePort, upstash } from "./servers.mjs";

const root = path.join(path.dirname(fileURLToPath(import.meta.url)), "..");
const app = path.join(root, "examples/next");
const next = path.join(root, "node_modules/next/dist/bin/next");

test("Next.js 16: proxy.js limits the paths of its matcher, in the Node.js runtime", async () => {
  const server = await upstash();
  after(() => server.stop());
  const env = {
    ...process.env,
    NEXT_TELEMETRY_DISABLED: "1",
    UPSTASH_REDIS_REST_URL: server.url,
    UPSTASH_REDIS_REST_TOKEN: server.token,
  };
  after(() => rmSync(path.join(app, ".next"), { recursive: true, force: true }));
  const { stdout } = await promisify(execFile)(process.execPath, [next, "build", app], { env, cwd: root });
  assert.match(stdout, /Proxy/);

  const port = await freePort();
  const site = spawn(process.execPath, [next, "start", app, "--port", port, "--hostname", "127.0.0.1"], { env, cwd: root, stdio: "ignore" });
  const ended = once(site, "exit");
  after(async () => {
    site.kill();
    await ended;
  });
  const get = (address, url = "/api/hello") =>
    fetch(`http://127.0.0.1:${port}${url}`, { headers: { "x-vercel-forwarded-for": address, "x-forwarded-for": String(Math.random()) } });
  for (let tries = 0; !(await get("192.0.2.9", "/about").catch(() => undefined)); tries++) {
    assert.ok(tries < 600 && site.exitCode === null, "next start does not answer");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }

  const responses = [];
  for (let nth = 0; nth < 3; nth++) responses.push(await get("192.0.2.1"));
  assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429]);
  assert.deepEqual(responses.map(({ headers }) => headers.get("x-ratelimit-remaining")), ["1", "0", "0"]);
  assert.equal(await responses[0].text(), "hello");
  assert.equal((await responses[2].json()).error, "rate_limited");
  assert.equal((await get("192.0.2.2")).status, 200);
  const about = await get("192.0.2.1", "/about");
  assert.deepEqual([about.status, about.headers.get("x-ratelimit-limit")], [404, null]);
});
