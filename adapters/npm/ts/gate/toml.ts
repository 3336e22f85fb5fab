import module from "#toml/module";
import { start } from "./engine.js";
import { BaseGate, type GateOptions } from "./gate.js";
import * as glue from "./glue.js";
import { Mistake, type Node } from "./rules/json.js";

export * from "./gate.js";

const engine = start(module, glue);

/** A value as the WebAssembly writes it: a number, a flag or a date, a text, a list, or a table. */
type Written =
  | [at: number, kind: 0 | 1, value: string]
  | [at: number, kind: 2, value: Written[]]
  | [at: number, kind: 3, value: [name: string, value: Written][]];

/** The gate of `@tidegate/edge/gate`, for rules files in TOML. It reads JSON and objects, too. */
export class Gate extends BaseGate {
  /**
   * Makes a gate from the text of a rules file, or from the object that it describes. A text is TOML, unless the `name` of the options
   * ends in `.json`:
   *
   *     const gate = Gate.fromRules(await readFile("rules.toml", "utf8"), { platform: "vercel", stores });
   *
   * Throws a `TidegateError` whose message says what to write instead, with its position in the text.
   */
  static fromRules(rules: string | object, options: GateOptions): Gate {
    return new this(readToml, rules, options);
  }
}

function readToml(text: string): Node {
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
