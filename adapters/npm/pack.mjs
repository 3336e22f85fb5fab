// Writes the two modules that load the package's WebAssembly, and prints the size of each store's package.

import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const KIB_MAX = 60;
let tooHeavy = false;

for (const [store, entry] of [["upstash", "index"], ["blobs", "netlify-blobs"]]) {
  const wasm = readFileSync(`dist/${store}/tidegate.wasm`);
  // Edge runtimes do not compile bytes at run time. Their bundlers provide a compiled module.
  writeFileSync(`dist/${store}/module.js`, `export { default } from "./tidegate.wasm?module";\n`);
  // Elsewhere the WebAssembly is inline, so that nothing is read or fetched.
  const bytes = `Uint8Array.from(atob("${wasm.toString("base64")}"), (byte) => byte.charCodeAt(0))`;
  writeFileSync(`dist/${store}/inline.js`, `export default new WebAssembly.Module(${bytes});\n`);

  const glue = bundled(entry, ["edge-light"]);
  const total = kib(wasm, glue);
  console.log(
    `${entry}: WebAssembly ${kib(wasm)} KiB + JavaScript ${kib(glue)} KiB = ${total} KiB gzipped, of ${KIB_MAX}; ` +
      `as one file ${kib(bundled(entry, []))} KiB`,
  );
  tooHeavy ||= total > KIB_MAX;
}
if (tooHeavy) console.log(`more than ${KIB_MAX} KiB: see README.md`);

function bundled(entry, conditions) {
  const { outputFiles } = buildSync({
    entryPoints: [`dist/${entry}.js`],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    conditions,
    external: ["*?module"],
  });
  return outputFiles[0].contents;
}

function kib(...parts) {
  return (parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0) / 1024).toFixed(1);
}
