import type { Keys } from "../../verdict.js";
import type { RulesPolicy } from "../policy.js";

/** Those of a request's keys by which a policy counts. */
export function keysOf({ dimensions }: RulesPolicy, keys: Keys): Keys {
  return Object.fromEntries(dimensions.map(({ name }) => [name, keys[name]!]));
}

/** The name of what a policy counts by these keys. No key has a space. */
export function nameOf({ id, dimensions }: RulesPolicy, keys: Keys): string {
  return [id, ...dimensions.map(({ name }) => keys[name])].join(" ");
}
