// The weight of a bundle, for pack.mjs and the benchmark.

import { readFileSync } from "node:fs";
import path from "node:path";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

/** The entries of the stores, and the module that each loads. */
export const STORES = { cloudflare: "object", "cloudflare-kv": "kv", "cloudflare-ratelimit": "rate-limit", upstash: "redis", redis: "redis", "netlify-blobs": "versioned", "deno-kv": "versioned", memory: "memory" };

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
    external: ["*?module", "node:*", "cloudflare:*", "crypto", "jose"],
  });
  return outputFiles[0].contents;
}

/** The weight of all parts, each gzipped. */
export const kib = (...parts) => parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0) / 1024;

/** The weight of the gate, beside those of its stores: without what it shares with the memory's. */
export function weightOfGate() {
  const [wasm, store] = [kib(readFileSync(path.join(import.meta.dirname, "dist/rules/tidegate.wasm"))), weight("memory")];
  const entries = ["gate", "stores/memory"].map((entry) => `export * as ${entry.slice(-4)} from "./dist/${entry}/index.js"`);
  const script = kib(bundled(entries.join("\n"), ["edge-light"])) - store.script;
  return { wasm, script, total: wasm + script };
}

/** The weight of a store in an application's output. */
export function weight(entry) {
  const module = readFileSync(path.join(import.meta.dirname, `dist/${STORES[entry]}/tidegate.wasm`));
  const [wasm, script] = [kib(module), kib(bundled(`export * from "./dist/stores/${entry}/index.js"`, ["edge-light"]))];
  return { wasm, script, total: wasm + script };
}
