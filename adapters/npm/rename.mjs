// Renames the imports and exports in the glue that wasm-bindgen wrote to the short names that wasm-opt chose:
//
//   node rename.mjs NAMES GLUE OUT
//
// Without NAMES, they keep their names. With NAMES, the glue is the package's, and loses what the package does not need.

import { readFileSync, writeFileSync } from "node:fs";

/** What the package's glue is shorter without, and what is in its place. A rules file is read once, so its text may be copied, and nothing is kept for the next. */
const SHORTER = [
  [/ {4}if \(realloc === undefined\) \{\n(.*?) {4}\}\n.*?\n\}\n/s, "$1}\n"],
  [/\nif \(!\('encodeInto' in cachedTextEncoder\)\) \{\n.*?\n\}\n/s, ""],
  // Old versions of Safari decode no more than 2 GiB altogether.
  [/const MAX_SAFARI_DECODE_BYTES.*?\nfunction decodeText\(.*?\n\}\n/s, ""],
  [/cachedTextDecoder\.decode\(\);\n/, ""],
  [/decodeText\(/, "cachedTextDecoder.decode("],
  [/ {4}let deferred2_0;\n.*? {4}try \{\n(.*?) {8}deferred2_0.*?return (.*?);\n.*?(wasm\.\w+)\(deferred2_0.*?\n {4}\}\n/s, "$1        const read = $2;\n        $3(ret[0], ret[1], 1);\n        return read;\n"],
  [/\.subarray\(ptr, ptr \+ buf\.length\)\.set\(buf\)/, ".set(buf, ptr)"],
  // The memory is smaller than 2 GiB.
  [/ {4}ptr = ptr >>> 0;\n/, ""],
  [/const ptr = malloc\(buf\.length, 1\) >>> 0;/, "const ptr = malloc(buf.length, 1);"],
  [/, malloc, realloc\) \{/, ", malloc) {"],
  [/(passStringToWasm0\(text, wasm\.\w+), wasm\.\w+/, "$1"],
  [/export function __wbg_set_wasm\(.*?\n\}\n/s, ""],
  [/let cachedUint8ArrayMemory0.*?\n\}\n/s, "const getUint8ArrayMemory0 = () => new Uint8Array(wasm.memory.buffer);\n"],
];

const [names, glue, out] = process.argv.slice(2);
const [imports, exports] = (names ? readFileSync(names, "utf8") : '"exports"')
  .split('"exports"')
  .map((part) => new Map([...part.matchAll(/"([^"]+)", "([^"]+)"\]/g)].map(([, name, short]) => [name, short])));
const start = `${names ? "" : "export const memory = () => wasm.memory;\n"}export function start(exports) {\n    wasm = exports;\n    exports.__wbindgen_start();\n}\n`;
let written = readFileSync(glue, "utf8");
for (const [part, rest] of names ? SHORTER : []) {
  if (!part.test(written)) throw new Error(`${glue} has no ${part}; is it of another version of wasm-bindgen?`);
  written = written.replace(part, rest);
}
const renamed = (written + start)
  .replace(/(?<=export function )\w+/g, (name) => imports.get(name) ?? name)
  .replace(/(?<=wasm\.|exports\.)\w+/g, (name) => exports.get(name) ?? name);
writeFileSync(out, renamed);
