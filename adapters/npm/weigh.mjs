// The weight of a bundle, for pack.mjs and the benchmark.

import { readFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

/** The entries of the stores. */
export const STORES = ["cloudflare", "cloudflare-kv", "cloudflare-ratelimit", "upstash", "redis", "postgres", "netlify-blobs", "deno-kv", "store", "memory"];

/** Those that have a `RateLimiter`, with what an application imports that counts by one window: of the parts, or of the entry itself. */
export const PARTS = {
  "cloudflare-ratelimit": { own: ["bindingWindow"] },
  upstash: { parts: ["slidingWindow"] },
  redis: { parts: ["slidingWindow"] },
  memory: { parts: ["slidingWindow"] },
};

/** The entries of the gates, and the folder of the WebAssembly that one loads. */
export const GATES = { gate: undefined, "gate/toml": "toml" };

/** Bundles what an ES module imports, as a user's bundler does with these conditions. */
export function bundled(contents, conditions) {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: import.meta.dirname },
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    platform: "browser",
    conditions,
    external: ["*?module", "node:*", "cloudflare:*", "crypto", "jose/*"],
  });
  return outputFiles[0].contents;
}

/** The weight of all parts, each gzipped. */
export const kib = (...parts) => parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0) / 1024;

/** What an application imports that limits by a store: its `Tidegate`, and the object that counts, if it is the application's. */
const imported = (entry) => `{ Tidegate${entry === "cloudflare" ? ", TidegateObject" : ""} } from "./dist/stores/${entry}/index.js"`;

/** The weight of a store in an application's output. */
export const weightOfStore = (entry) => kib(bundled(`export ${imported(entry)}`, ["edge-light"]));

/** The weight of a store's `RateLimiter` with these parts, and what else is of its entry. */
export const weightOfParts = (entry, { parts = [], own = [] } = {}) =>
  kib(bundled(`export { ${["RateLimiter", ...own].join()} } from "./dist/stores/${entry}/index.js"; export { ${parts.join()} } from "./dist/parts.js";`, ["edge-light"]));

/**
 * The weight of a gate, beside those of its stores: without what it shares with one that calls. That is one without scripts, because their place in a
 * bundle changes what gzip finds.
 */
export function weightOfGate(entry) {
  const module = GATES[entry];
  const wasm = module ? kib(readFileSync(path.join(import.meta.dirname, `dist/${module}/tidegate.wasm`))) : 0;
  const file = entry === "gate" ? "gate/index.js" : `${entry}.js`;
  const script = kib(bundled(`export * as gate from "./dist/${file}"; export ${imported("postgres")}`, ["edge-light"])) - weightOfStore("postgres");
  return { wasm, script, total: wasm + script };
}
