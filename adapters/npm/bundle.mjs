// Bundles the compiled modules for each entry of the package, and for its program:
//
//   node bundle.mjs MODULES OUT
//
// What several entries share is in chunks, so that an application has it once. Node.js loads a few files in place of fifty, each of which
// takes it about a millisecond.

import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { build } from "esbuild";
import { packedFixtures } from "./fixtures.mjs";

const [modules, out] = process.argv.slice(2);
const { bin, exports } = JSON.parse(readFileSync("package.json", "utf8"));

/** Bundles files of the package that share chunks in a folder. */
async function bundle(files, chunks, options) {
  const { outputFiles } = await build({
    entryPoints: files.map((file) => file.replace(/^\.\/dist/, modules)),
    bundle: true,
    splitting: true,
    // Puts the numbers of constants in their place, also where another module has them.
    minifySyntax: true,
    format: "esm",
    target: "es2022",
    outbase: modules,
    outdir: out,
    chunkNames: `${chunks}/[hash]`,
    packages: "external",
    // Node.js and bundlers choose the module by their conditions.
    external: ["#toml/module", "node:*"],
    logLevel: "warning",
    write: false,
    ...options,
  });
  for (const { path: file, text } of outputFiles) {
    mkdirSync(path.dirname(file), { recursive: true });
    // Of a chunk from which nothing is imported, nothing is needed: no module of the package does anything when it is loaded.
    writeFileSync(file, text.replace(/^import "[./]*\/chunks\/\w+\.js";\n/gm, ""));
  }
}

// The scripts for Redis have a file of their own, which a store imports first. So they stand before all else in a bundle, and gzip, which looks
// back by 32 KiB, finds what the rest has in common.
await bundle([...Object.values(exports).flatMap(({ types, default: entry }) => (types ? [entry] : [])), "./dist/stores/redis/built.js"], "chunks");
// The program has chunks of its own, so that those of the entries stay few.
await bundle(Object.values(bin), "program/chunks", { minifyWhitespace: true, minifySyntax: true });
for (const file of Object.values(bin)) chmodSync(file.replace(/^\.\/dist/, out), 0o755);
// One file, because an application loads none of it, and each file takes room of its own.
writeFileSync(path.join(out, "program/fixtures.json"), JSON.stringify(packedFixtures()));
