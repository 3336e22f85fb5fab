// Runs a guest in a plain Node.js process, as Vercel runs functions and Next.js 16 runs `proxy.ts`. See arguments.mjs.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";
import { serve } from "./server.mjs";

// Packages in the older format load Node.js's own modules by `require`.
const REQUIRE = `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);`;

Object.assign(process.env, env);
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-node-"));
const file = path.join(folder, "guest.mjs");
writeFileSync(file, await bundle(guest, { format: "esm", platform: "node", banner: { js: REQUIRE } }));
const { default: app } = await import(pathToFileURL(file));
rmSync(folder, { recursive: true, force: true });

// Node.js provides the fields as a flat list of names and values.
serve(({ method, url, rawHeaders }, body) => {
  const headers = new Headers();
  for (let at = 0; at < rawHeaders.length; at += 2) headers.append(rawHeaders[at], rawHeaders[at + 1]);
  const request = new Request(`http://127.0.0.1${url}`, { method, headers });
  // What a guest reads of a body.
  request.text = async () => body;
  return app(request);
});
