// Runs a guest in Vercel's edge runtime, as Next.js before version 16 runs `middleware.ts`. See arguments.mjs.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { EdgeRuntime } from "edge-runtime";
import { env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";

// Vercel's builder removes `.wasm?module` from the bundle, and its runtime provides the compiled module as a global
// variable.
const modules = {};
const wasm = {
  name: "wasm",
  setup(build) {
    build.onResolve({ filter: /\.wasm\?module$/ }, async ({ path, ...rest }) => {
      const { path: file } = await build.resolve(path.replace("?module", ""), rest);
      return { path: file, namespace: "wasm" };
    });
    build.onLoad({ filter: /.*/, namespace: "wasm" }, ({ path }) => {
      const name = `wasm_${Object.keys(modules).length}`;
      modules[name] = new WebAssembly.Module(readFileSync(path));
      return { contents: `export default globalThis.${name};`, loader: "js" };
    });
  },
};

const code = await bundle(guest, {
  format: "iife",
  globalName: "guest",
  conditions: ["edge-light"],
  plugins: [wasm],
});

const runtime = new EdgeRuntime({
  // As on Vercel, no code is compiled from text or bytes at run time.
  codeGeneration: { strings: false, wasm: false },
  extend: (context) => Object.assign(context, modules, { process: { env } }),
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
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
