import module from "#toml/module";
import * as glue from "../glue.js";
import { start } from "../start_wasm.js";
import { Mistake, type Node } from "./json.js";

const engine = start(module, glue);

/** A value as the WebAssembly writes it: a number, a flag or a date, a text, a list, or a table. */
type Written =
  | [at: number, kind: 0 | 1, value: string]
  | [at: number, kind: 2, value: Written[]]
  | [at: number, kind: 3, value: [name: string, value: Written][]];

/** Reads a text in TOML. Throws a `Mistake`. */
export function readToml(text: string): Node {
  const read = JSON.parse(engine.read(text)) as Written | { at: number; what: string };
  if (!Array.isArray(read)) throw new Mistake(read.at, read.what);
  return nodeOf(read);
}

function nodeOf([at, kind, value]: Written): Node {
  switch (kind) {
    case 0:
      return { at, bare: value };
    case 1:
      return { at, text: value };
    case 2:
      return { at, list: value.map(nodeOf) };
    case 3:
      return { at, table: value.map(([name, node]) => [name, nodeOf(node)]) };
  }
}
