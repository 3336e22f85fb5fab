// Runs a guest in Deno, as Netlify runs edge functions. See arguments.mjs.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { backlog, env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";

const code = await bundle(guest, { format: "esm", conditions: ["deno", "worker"], platform: "browser", external: ["node:*"], alias: { process: "node:process" } });
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-netlify-"));
writeFileSync(path.join(folder, "guest.mjs"), code);
writeFileSync(
  path.join(folder, "main.mjs"),
  `import app from "./guest.mjs";
   Deno.serve({ hostname: "127.0.0.1", port: 0, tcpBacklog: ${backlog}, onListen: ({ port }) => console.log("http://127.0.0.1:" + port) }, app);
   for await (const _ of Deno.stdin.readable);
   Deno.exit(0);`,
);

// Netlify passes the address of the site's blobs to a function in this variable.
const { BLOBS_URL: edgeURL } = env;
const context = { edgeURL, uncachedEdgeURL: edgeURL, token: "conformance", siteID: "conformance" };
if (edgeURL) env.NETLIFY_BLOBS_CONTEXT = Buffer.from(JSON.stringify(context)).toString("base64");

// Deno KV needs its file.
const { DENO_KV } = env;
const kv = DENO_KV ? ["--unstable-kv", `--allow-read=${path.dirname(DENO_KV)}`, `--allow-write=${path.dirname(DENO_KV)}`] : [];
const deno = createRequire(import.meta.url).resolve("deno/bin.cjs");
const child = spawn(process.execPath, [deno, "run", "--no-prompt", "--no-remote", "--allow-net=127.0.0.1", "--allow-env", ...kv, path.join(folder, "main.mjs")], {
  stdio: ["pipe", "inherit", "inherit"],
  env: { ...process.env, ...env, NO_COLOR: "1" },
});
process.stdin.pipe(child.stdin);
child.on("exit", (status) => {
  rmSync(folder, { recursive: true, force: true });
  process.exit(status ?? 1);
});
