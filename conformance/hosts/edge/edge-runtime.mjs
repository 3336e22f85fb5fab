// Runs a guest in Vercel's edge runtime, as Next.js before version 16 runs `middleware.ts`. See arguments.mjs.

import { EdgeRuntime } from "edge-runtime";
import { env, guest } from "./arguments.mjs";
import { bundle } from "./bundle.mjs";
import { serve } from "./server.mjs";

const code = await bundle(guest, { format: "iife", globalName: "guest", conditions: ["edge-light"] });

const runtime = new EdgeRuntime({
  // As on Vercel, no code is compiled from text or bytes at run time.
  codeGeneration: { strings: false, wasm: false },
  extend: (context) => Object.assign(context, { process: { env } }),
  initialCode: `${code}; addEventListener("fetch", (event) => event.respondWith(guest.default(event.request)));`,
});

// The runtime's own server pipes each body through several web streams.
serve(({ method, url, headers }, body) =>
  runtime.dispatchFetch(`http://127.0.0.1${url}`, { method, headers, body: method === "GET" || method === "HEAD" ? undefined : body }),
);
