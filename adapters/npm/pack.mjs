// Writes the two modules that load the gate's WebAssembly, and prints the size of each entry.

import { readFileSync, writeFileSync } from "node:fs";
import { GATES, STORES, weightOfGate, weightOfStore } from "./weigh.mjs";

const KIB_MAX = 40;

for (const gate of Object.values(GATES)) {
  const wasm = readFileSync(`dist/${gate}/tidegate.wasm`);
  // Edge runtimes do not compile bytes at run time. Their bundlers provide a compiled module.
  writeFileSync(`dist/${gate}/module.js`, `export { default } from "./tidegate.wasm?module";\n`);
  // Elsewhere the WebAssembly is inline, so that nothing is read or fetched.
  // A `Buffer` decodes it many times as fast.
  const decode = `(typeof Buffer === "function" ? Buffer.from(text, "base64") : Uint8Array.from(atob(text), (byte) => byte.charCodeAt(0)))`;
  writeFileSync(`dist/${gate}/inline.js`, `const text = "${wasm.toString("base64")}";\nexport default () => new WebAssembly.Module${decode};\n`);
}

for (const entry of STORES) {
  const size = weightOfStore(entry);
  console.log(`${entry}: ${size.toFixed(1)} KiB gzipped, of ${KIB_MAX}`);
  if (size > KIB_MAX) throw new Error(`${entry} is more than ${KIB_MAX} KiB`);
}
for (const entry of Object.keys(GATES)) {
  const { wasm, script, total } = weightOfGate(entry);
  console.log(`${entry}: WebAssembly ${wasm.toFixed(1)} KiB + JavaScript ${script.toFixed(1)} KiB = ${total.toFixed(1)} KiB gzipped, beside its stores`);
}
