import { DenyCache } from "../../deny_cache.js";
import { TidegateError } from "../../error.js";
import type { Layer } from "../../layer.js";
import type { Lease } from "../../question.js";
import { quoted } from "../rules/quoted_text.js";
import type { StoreRules } from "../rules/store_rules.js";
import { suggestion } from "../rules/suggestion.js";
import { RulesPolicy } from "../rules_policy.js";
import { Fallback } from "./fallback.js";
import { Shadow } from "./shadow.js";
import { checkPolicy } from "./store_support.js";
import { Tiered } from "./tiered.js";

/** A store with what is around it. */
export interface Composed {
  readonly rules: StoreRules | undefined;
  /** The leases of its limits. */
  readonly leases: readonly Lease[];
  readonly layer: Layer;
  /** With the name of the limit in whose place each is tried. */
  readonly shadows: readonly (readonly [limit: string, shadow: Shadow])[];
}

/** The store of a name, which is at a field of the rules. */
type Find = (name: string, field: string) => Layer;

/**
 * Puts around each store what the rules say. What was around it before, and has the same rules and leases, is kept with its counts.
 * `leasesOf` are those of the limits of the store at a place, each once. Throws what is wrong with the rules.
 */
export function composed(
  all: readonly StoreRules[],
  stores: readonly Layer[],
  names: readonly string[],
  leasesOf: (place: number) => readonly Lease[],
  before: readonly Composed[],
): Composed[] {
  const find: Find = (name, field) => {
    const store = stores[names.indexOf(name)];
    if (store) return store;
    throw TidegateError.from(["invalid", `${field}: there is no store ${quoted(name)}; ${suggestion(name, names)}`]);
  };
  for (const { name } of all) find(name, "stores");
  return stores.map((store, place) => {
    const [rules, leases] = [all.find(({ name }) => name === names[place]), leasesOf(place)];
    const same = before[place];
    if (same && textOf(same.rules, same.leases) === textOf(rules, leases)) return same;
    return { rules, leases, ...(rules ? compose(rules, store, find) : { layer: store, shadows: [] }) };
  });
}

/** Puts around a store what its rules say, from the inside. */
function compose({ name, fallback, denyCache, shadows, near }: StoreRules, store: Layer, find: Find): Pick<Composed, "layer" | "shadows"> {
  const fieldOf = (field: string) => `stores.${name}.${field}`;
  let layer = store;
  if (fallback) {
    const field = fieldOf("fallback");
    const backup = find(fallback.store, field);
    layer = naming(field, () => new Fallback(store, backup, fallback));
  }
  if (denyCache) layer = new DenyCache(layer, denyCache);
  const tried = shadows.map(({ proposal }) => {
    const can = layer.capabilities;
    const placed = can.dimensions === "grouped" ? proposal.placed : proposal;
    naming(fieldOf("shadow"), () => checkPolicy(can, placed));
    const shadow = new Shadow(layer, placed);
    layer = shadow;
    return [proposal.name, shadow] as const;
  });
  if (near) {
    const field = fieldOf("near");
    const first = find(near.store, field);
    layer = naming(field, () => new Tiered(first, near.policy, layer));
  }
  return { layer, shadows: tried };
}

/** Names the field of an error. */
function naming<T>(field: string, make: () => T): T {
  try {
    return make();
  } catch (thrown) {
    const { kind, message } = TidegateError.from(thrown);
    throw TidegateError.from([kind, `${field}: ${message}`]);
  }
}

/** The same text for equal rules and leases. */
function textOf(...given: [rules: StoreRules | undefined, leases: readonly Lease[]]): string {
  return JSON.stringify(given, (_, value: unknown) => (value instanceof RulesPolicy ? value.text : value));
}
