// Renames the imports and exports in the glue that wasm-bindgen wrote to the short names that wasm-opt chose:
//
//   node rename.mjs NAMES GLUE OUT
//
// Without NAMES, they keep their names. With NAMES, the glue is the package's, and loses what the package does not need.

import { readFileSync, writeFileSync } from "node:fs";

/** What the package's glue is shorter without, and what is in its place. A rules file is read once, so its text may be copied. */
const SHORTER = [
  [/ {4}if \(realloc === undefined\) \{\n(.*?) {4}\}\n.*?\n\}\n/s, "$1}\n"],
  [/\nif \(!\('encodeInto' in cachedTextEncoder\)\) \{\n.*?\n\}\n/s, ""],
  // Old versions of Safari decode no more than 2 GiB altogether.
  [/const MAX_SAFARI_DECODE_BYTES.*?\nfunction decodeText\(bytes\) \{\n.*?\n {4}\}\n/s, "function decodeText(bytes) {\n"],
];

const [names, glue, out] = process.argv.slice(2);
const [imports, exports] = (names ? readFileSync(names, "utf8") : '"exports"')
  .split('"exports"')
  .map((part) => new Map([...part.matchAll(/"([^"]+)", "([^"]+)"\]/g)].map(([, name, short]) => [name, short])));
const start = "export const memory = () => wasm.memory;\nexport function start(exports) {\n    __wbg_set_wasm(exports);\n    exports.__wbindgen_start();\n}\n";
let written = readFileSync(glue, "utf8");
for (const [part, rest] of names ? SHORTER : []) {
  if (!part.test(written)) throw new Error(`${glue} has no ${part}; is it of another version of wasm-bindgen?`);
  written = written.replace(part, rest);
}
const renamed = (written + start)
  .replace(/(?<=export function )\w+/g, (name) => imports.get(name) ?? name)
  .replace(/(?<=wasm\.|exports\.)\w+/g, (name) => exports.get(name) ?? name);
writeFileSync(out, renamed);
