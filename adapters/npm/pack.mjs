// Writes the two modules that load the package's WebAssembly, and prints the size of each store's package.

import { readFileSync, writeFileSync } from "node:fs";
import { bundled, kib } from "./weigh.mjs";

const KIB_MAX = 60;
let tooHeavy = false;

const STORES = { cloudflare: "object", "cloudflare-kv": "kv", "cloudflare-ratelimit": "rate-limit", upstash: "redis", redis: "redis", "netlify-blobs": "versioned", "deno-kv": "versioned", memory: "memory" };

for (const store of new Set(Object.values(STORES))) {
  const wasm = readFileSync(`dist/${store}/tidegate.wasm`);
  // Edge runtimes do not compile bytes at run time. Their bundlers provide a compiled module.
  writeFileSync(`dist/${store}/module.js`, `export { default } from "./tidegate.wasm?module";\n`);
  // Elsewhere the WebAssembly is inline, so that nothing is read or fetched.
  const bytes = `Uint8Array.from(atob("${wasm.toString("base64")}"), (byte) => byte.charCodeAt(0))`;
  writeFileSync(`dist/${store}/inline.js`, `export default () => new WebAssembly.Module(${bytes});\n`);
}

for (const [entry, store] of Object.entries(STORES)) {
  const wasm = readFileSync(`dist/${store}/tidegate.wasm`);
  const all = `export * from "./dist/stores/${entry}/index.js"`;
  const glue = bundled(all, ["edge-light"]);
  const total = kib(wasm, glue);
  const [light, heavy, whole] = [kib(wasm), kib(glue), kib(bundled(all, []))].map((size) => size.toFixed(1));
  console.log(`${entry}: WebAssembly ${light} KiB + JavaScript ${heavy} KiB = ${total.toFixed(1)} KiB gzipped, of ${KIB_MAX}; as one file ${whole} KiB`);
  tooHeavy ||= total > KIB_MAX;
}
if (tooHeavy) console.log(`more than ${KIB_MAX} KiB: see README.md`);
