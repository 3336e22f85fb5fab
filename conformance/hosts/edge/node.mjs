// Runs a guest in a plain Node.js process, as Vercel runs functions and Next.js 16 runs `proxy.ts`. See arguments.mjs.

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { text } from "node:stream/consumers";
import { pathToFileURL } from "node:url";
import { backlog, env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";

// Packages in the older format load Node.js's own modules by `require`.
const REQUIRE = `import { createRequire } from "node:module"; const require = createRequire(import.meta.url);`;

Object.assign(process.env, env);
const folder = mkdtempSync(path.join(tmpdir(), "tidegate-node-"));
const file = path.join(folder, "guest.mjs");
writeFileSync(file, await bundle(guest, { format: "esm", platform: "node", banner: { js: REQUIRE } }));
const { default: app } = await import(pathToFileURL(file));
rmSync(folder, { recursive: true, force: true });

/**
 * Converts the request for the app. Node.js provides the fields as a flat list of names and values. Bodies are texts, because
 * a stream takes several times as long as the guest.
 */
async function received(message) {
  const { method, url, rawHeaders } = message;
  const headers = new Headers();
  for (let at = 0; at < rawHeaders.length; at += 2) headers.append(rawHeaders[at], rawHeaders[at + 1]);
  const body = method === "GET" || method === "HEAD" ? undefined : await text(message);
  return new Request(`http://127.0.0.1${url}`, { method, headers, body });
}

const server = createServer(async (message, answer) => {
  const response = await app(await received(message));
  answer.writeHead(response.status, Object.fromEntries(response.headers));
  answer.end(await response.text());
});
server.listen({ host: "127.0.0.1", port: 0, backlog }, () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
