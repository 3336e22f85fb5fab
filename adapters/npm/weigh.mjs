// The weight of a bundle, for pack.mjs and the benchmark.

import { readFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

/** The entries of the stores. */
export const STORES = ["cloudflare", "cloudflare-kv", "cloudflare-ratelimit", "upstash", "redis", "postgres", "netlify-blobs", "deno-kv", "store", "memory"];

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

/** The weight of a store in an application's output. */
export const weightOfStore = (entry) => kib(bundled(`export * from "./dist/stores/${entry}/index.js"`, ["edge-light"]));

/** The weight of a `RateLimiter` in memory with these parts. */
export const weightOfParts = (...names) =>
  kib(bundled(`export { RateLimiter } from "./dist/stores/memory/index.js"; export { ${names.join()} } from "./dist/parts.js";`, ["edge-light"]));

/** The weight of a gate, beside those of its stores: without what it shares with one that calls. */
export function weightOfGate(entry) {
  const module = GATES[entry];
  const wasm = module ? kib(readFileSync(path.join(import.meta.dirname, `dist/${module}/tidegate.wasm`))) : 0;
  const file = entry === "gate" ? "gate/index.js" : `${entry}.js`;
  const entries = [file, "stores/upstash/index.js"].map((file, place) => `export * as m${place} from "./dist/${file}"`);
  const script = kib(bundled(entries.join("\n"), ["edge-light"])) - weightOfStore("upstash");
  return { wasm, script, total: wasm + script };
}
