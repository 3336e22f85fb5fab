import { BaseGate, type GateOptions } from "./gate.js";

export * from "./gate.js";

/**
 * Applies a rules file to requests: which limits apply to which requests, at which cost, and by whose key. It is the gate of
 * `tidegate-core`, with the same files and the same counts.
 *
 *     const gate = Gate.fromRules(rules, { platform: "vercel", stores: { default: (limit) => new Tidegate({ url, token, ...limit }) } });
 *     const verdict = await gate.check(request);
 *     return verdict.response ?? verdict.onto(await app(request));
 *
 * Make one and keep it. It reads JSON; that of `@tidegate/edge/gate/toml` reads TOML, too.
 */
export class Gate extends BaseGate {
  /**
   * Makes a gate from the text of a rules file in JSON, or from the object that it describes.
   *
   * Throws a `TidegateError` whose message says what to write instead, after its position in the text, such as `rules.json:3:14`, or
   * its place in the object, such as `rules[0].limits`.
   */
  static fromRules(rules: string | object, options: GateOptions): Gate {
    return new this(undefined, rules, options);
  }
}
