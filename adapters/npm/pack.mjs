// Writes the two modules that load WebAssembly, copies what the package has of the repository, prints the size of each entry, and fails if one
// is too large.

import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { GATES, PARTS, STORES, weightOfGate, weightOfParts, weightOfStore } from "./weigh.mjs";

const STORE_KIB_MAX = 42;
/** The most of each store's `RateLimiter` with one window. */
const PARTS_KIB_MAX = { "cloudflare-ratelimit": 9, upstash: 25, redis: 24, memory: 10 };
/** The most script of a gate, beside its stores. It verifies tokens without another package. */
const GATE_KIB_MAX = 25;

for (const folder of Object.values(GATES).filter(Boolean)) {
  const wasm = readFileSync(`dist/${folder}/tidegate.wasm`);
  // Edge runtimes do not compile bytes at run time. Their bundlers provide a compiled module.
  writeFileSync(`dist/${folder}/module.js`, `export { default } from "./tidegate.wasm?module";\n`);
  // Elsewhere the WebAssembly is inline, so that nothing is read or fetched.
  // A `Buffer` decodes it many times as fast.
  const decode = `(typeof Buffer === "function" ? Buffer.from(text, "base64") : Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0)))`;
  writeFileSync(`dist/${folder}/inline.js`, `const text = "${wasm.toString("base64")}";\nexport default () => new WebAssembly.Module${decode};\n`);
}

// So `npm pack` needs no other file than those of the package.
for (const file of ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"]) copyFileSync(`../../${file}`, file);
copyFileSync("../../core/rules.schema.json", "rules.schema.json");

for (const entry of STORES) {
  const size = weightOfStore(entry);
  console.log(`${entry}: ${size.toFixed(1)} KiB gzipped, of ${STORE_KIB_MAX}`);
  if (size > STORE_KIB_MAX) throw new Error(`${entry} is more than ${STORE_KIB_MAX} KiB`);
}
for (const [entry, part] of Object.entries(PARTS)) {
  const [size, most] = [weightOfParts(entry, part), PARTS_KIB_MAX[entry]];
  console.log(`${entry}, a RateLimiter of one window: ${size.toFixed(1)} KiB gzipped, of ${most}; ${weightOfParts(entry).toFixed(1)} without the window`);
  if (size > most) throw new Error(`the RateLimiter of ${entry} is more than ${most} KiB`);
}
for (const entry of Object.keys(GATES)) {
  const { wasm, script, total } = weightOfGate(entry);
  const parts = wasm > 0 ? `WebAssembly ${wasm.toFixed(1)} KiB + JavaScript ${script.toFixed(1)} KiB = ` : "";
  console.log(`${entry}: ${parts}${total.toFixed(1)} KiB gzipped, beside its stores; of JavaScript ${GATE_KIB_MAX} KiB are allowed`);
  if (script > GATE_KIB_MAX) throw new Error(`${entry} is more than ${GATE_KIB_MAX} KiB of JavaScript`);
}
