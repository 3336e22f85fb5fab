// Runs a guest in Deno, as Netlify runs edge functions:
//
//   node netlify.mjs --url URL --token TOKEN [--test-mode]
//   node netlify.mjs --blobs URL [--test-mode]
//
// It prints its address, and ends when standard input closes.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { parseArgs } from "node:util";
import { bundle } from "./bundle.mjs";

const { values: args } = parseArgs({
  options: {
    url: { type: "string" },
    token: { type: "string" },
    blobs: { type: "string" },
    "test-mode": { type: "boolean", default: false },
  },
});

const guest = args.blobs ? "blobs.mjs" : "upstash.mjs";
const code = await bundle(guest, { format: "esm", conditions: ["deno", "worker"], platform: "browser", external: ["node:*"], alias: { process: "node:process" } });
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-netlify-"));
writeFileSync(path.join(folder, "guest.mjs"), code);
writeFileSync(
  path.join(folder, "main.mjs"),
  `import app from "./guest.mjs";
   Deno.serve({ hostname: "127.0.0.1", port: 0, onListen: ({ port }) => console.log("http://127.0.0.1:" + port) }, app);
   for await (const _ of Deno.stdin.readable);
   Deno.exit(0);`,
);

// Netlify passes the address of the site's blobs to a function in this variable.
const context = { edgeURL: args.blobs, uncachedEdgeURL: args.blobs, token: "conformance", siteID: "conformance" };
const env = {
  ...process.env,
  UPSTASH_REDIS_REST_URL: args.url,
  UPSTASH_REDIS_REST_TOKEN: args.token,
  NETLIFY_BLOBS_CONTEXT: args.blobs && Buffer.from(JSON.stringify(context)).toString("base64"),
  PLATFORM: "netlify",
  TIDEGATE_TEST_MODE: args["test-mode"] ? "on" : "off",
  NO_COLOR: "1",
};
const deno = createRequire(import.meta.url).resolve("deno/bin.cjs");
const child = spawn(process.execPath, [deno, "run", "--no-prompt", "--no-remote", "--allow-net=127.0.0.1", "--allow-env", path.join(folder, "main.mjs")], {
  stdio: ["pipe", "inherit", "inherit"],
  env,
});
process.stdin.pipe(child.stdin);
child.on("exit", (status) => {
  rmSync(folder, { recursive: true, force: true });
  process.exit(status ?? 1);
});
