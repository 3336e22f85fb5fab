// Writes the two ways in which the package's WebAssembly is loaded, and prints what each weighs.

import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

const wasm = readFileSync("dist/wasm/tollgate.wasm");

// Edge runtimes compile no bytes at run time: their bundlers hand over a module.
writeFileSync("dist/wasm/module.js", `export { default } from "./tollgate.wasm?module";\n`);
// Elsewhere it travels within the JavaScript, so that neither files nor addresses are needed.
writeFileSync(
  "dist/wasm/inline.js",
  `export default new WebAssembly.Module(Uint8Array.from(atob("${wasm.toString("base64")}"), (c) => c.charCodeAt(0)));\n`,
);

const bundled = (conditions) =>
  buildSync({
    entryPoints: ["dist/index.js"],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    conditions,
    external: ["*?module"],
  }).outputFiles[0].contents;
const kib = (...parts) => (parts.reduce((sum, part) => sum + gzipSync(part, { level: 9 }).length, 0) / 1024).toFixed(1);

const glue = bundled(["edge-light"]);
const limit = 60;
console.log(`WebAssembly ${(wasm.length / 1024).toFixed(1)} KiB, gzipped ${kib(wasm)} KiB; JavaScript gzipped ${kib(glue)} KiB`);
console.log(`both gzipped: ${kib(wasm, glue)} KiB of ${limit} KiB; as one file with the WebAssembly inline: ${kib(bundled([]))} KiB`);
if (kib(wasm, glue) > limit) {
  console.error("too heavy");
  process.exit(1);
}
