// Bundles the compiled modules for each entry of the package:
//
//   node bundle.mjs MODULES OUT
//
// What several entries share is in chunks, so that an application has it once. Node.js loads a few files in place of fifty, each of which
// takes it about a millisecond.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";

const [modules, out] = process.argv.slice(2);
const { exports } = JSON.parse(readFileSync("package.json", "utf8"));

const { outputFiles } = await build({
  entryPoints: Object.values(exports).flatMap(({ types, default: entry }) => (types ? [entry.replace(/^\.\/dist/, modules)] : [])),
  bundle: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  outbase: modules,
  outdir: out,
  chunkNames: "chunks/[hash]",
  packages: "external",
  // Node.js and bundlers choose the module by their conditions.
  external: ["#toml/module"],
  logLevel: "warning",
  write: false,
});
for (const { path: file, text } of outputFiles) {
  mkdirSync(path.dirname(file), { recursive: true });
  // Of a chunk from which nothing is imported, nothing is needed: no module of the package does anything when it is loaded.
  writeFileSync(file, text.replace(/^import "[./]*\/chunks\/\w+\.js";\n/gm, ""));
}
