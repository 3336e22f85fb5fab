// Renames the imports and exports in the glue that wasm-bindgen wrote to the short names that wasm-opt chose:
//
//   node rename.mjs NAMES GLUE OUT
//
// Without NAMES, they keep their names.

import { readFileSync, writeFileSync } from "node:fs";

const [names, glue, out] = process.argv.slice(2);
const [imports, exports] = (names ? readFileSync(names, "utf8") : '"exports"')
  .split('"exports"')
  .map((part) => new Map([...part.matchAll(/"([^"]+)", "([^"]+)"\]/g)].map(([, name, short]) => [name, short])));
const start = "export const memory = () => wasm.memory;\nexport function start(exports) {\n    __wbg_set_wasm(exports);\n    exports.__wbindgen_start();\n}\n";
const renamed = (readFileSync(glue, "utf8") + start)
  .replace(/(?<=export function )\w+/g, (name) => imports.get(name) ?? name)
  .replace(/(?<=wasm\.|exports\.)\w+/g, (name) => exports.get(name) ?? name);
writeFileSync(out, renamed);
