import { BaseGate, type GateOptions } from "./gate.js";
import { readToml } from "./rules/toml.js";

export * from "./gate.js";

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
