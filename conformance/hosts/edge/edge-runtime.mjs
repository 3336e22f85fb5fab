// Runs a guest in Vercel's edge runtime, as Next.js before version 16 runs `middleware.ts`. See arguments.mjs.

import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { EdgeRuntime } from "edge-runtime";
import { backlog, env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";

const code = await bundle(guest, { format: "iife", globalName: "guest", conditions: ["edge-light"] });

const runtime = new EdgeRuntime({
  // As on Vercel, no code is compiled from text or bytes at run time.
  codeGeneration: { strings: false, wasm: false },
  extend: (context) => Object.assign(context, { process: { env } }),
  initialCode: `${code}; addEventListener("fetch", (event) => event.respondWith(guest.default(event.request)));`,
});

// The runtime's own server pipes each body through several web streams, which takes longer than the guest.
const server = createServer(async (message, answer) => {
  const { method, url, headers } = message;
  const body = method === "GET" || method === "HEAD" ? undefined : await text(message);
  const response = await runtime.dispatchFetch(`http://127.0.0.1${url}`, { method, headers, body });
  answer.writeHead(response.status, Object.fromEntries(response.headers));
  answer.end(await response.text());
});
server.listen({ host: "127.0.0.1", port: 0, backlog }, () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
