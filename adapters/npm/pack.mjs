// Writes the two modules that load the package's WebAssembly, and prints the size of each store's package.

import { readFileSync, writeFileSync } from "node:fs";
import { bundled, GATES, kib, STORES, weight, weightOfGate } from "./weigh.mjs";

const KIB_MAX = 60;
let tooHeavy = false;

for (const store of new Set([...Object.values(STORES), ...Object.values(GATES)])) {
  const wasm = readFileSync(`dist/${store}/tidegate.wasm`);
  // Edge runtimes do not compile bytes at run time. Their bundlers provide a compiled module.
  writeFileSync(`dist/${store}/module.js`, `export { default } from "./tidegate.wasm?module";\n`);
  // Elsewhere the WebAssembly is inline, so that nothing is read or fetched.
  // A `Buffer` decodes it many times as fast.
  const decode = `(typeof Buffer === "function" ? Buffer.from(text, "base64") : Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0)))`;
  writeFileSync(`dist/${store}/inline.js`, `const text = "${wasm.toString("base64")}";\nexport default () => new WebAssembly.Module${decode};\n`);
}

for (const entry of Object.keys(STORES)) {
  const { wasm, script, total } = weight(entry);
  const whole = kib(bundled(`export * from "./dist/stores/${entry}/index.js"`, []));
  const [light, heavy, one] = [wasm, script, whole].map((size) => size.toFixed(1));
  console.log(`${entry}: WebAssembly ${light} KiB + JavaScript ${heavy} KiB = ${total.toFixed(1)} KiB gzipped, of ${KIB_MAX}; as one file ${one} KiB`);
  tooHeavy ||= total > KIB_MAX;
}
for (const entry of Object.keys(GATES)) {
  const gate = weightOfGate(entry);
  console.log(`${entry}: WebAssembly ${gate.wasm.toFixed(1)} KiB + JavaScript ${gate.script.toFixed(1)} KiB = ${gate.total.toFixed(1)} KiB gzipped, beside its stores`);
}
if (tooHeavy) console.log(`more than ${KIB_MAX} KiB: see README.md`);
