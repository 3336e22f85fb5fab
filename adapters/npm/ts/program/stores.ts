// The names of the stores in a rules file, as `core/src/gate/rules/store_names.rs` has them.

import { invalid } from "../error.js";
import { quoted } from "../gate/rules/quoted_text.js";
import type { Rules } from "../gate/rules/rules.js";
import { suggestion } from "../gate/rules/suggestion.js";

/** The stores that rules name. */
const counting = ({ rules }: Rules) => rules.flatMap(({ store }) => store ?? []);

/** The stores that others ask. */
const asked = ({ stores }: Rules) => [...stores.flatMap(({ near }) => near?.store ?? []), ...stores.flatMap(({ fallback }) => fallback?.store ?? [])];

/** The stores of the table `stores`. */
const entries = ({ stores }: Rules) => stores.map(({ name }) => name);

/** Those that nothing else names. */
function unnamed(rules: Rules): string[] {
  const named = [...counting(rules), ...asked(rules)];
  return entries(rules).filter((name) => !named.includes(name));
}

/**
 * The names of all stores in a file, each once. First come those of the table `stores` that no rule names and no other store asks: one of
 * them is probably the gate's first.
 */
export function storeNames(rules: Rules): string[] {
  return [...new Set([...unnamed(rules), ...counting(rules), ...entries(rules), ...asked(rules)])];
}

/** Checks all names of stores in a file, as a gate with these stores does. */
export function checkStores(rules: Rules, known: readonly string[]): void {
  const check = (field: string, name: string | undefined) => {
    if (name === undefined || known.includes(name)) return;
    throw invalid(field, `there is no store ${quoted(name)}; ${suggestion(name, known)}`);
  };
  for (const { name, store } of rules.rules) check(`rule ${quoted(name)}`, store);
  for (const { name, fallback, near } of rules.stores) {
    check("stores", name);
    check(`stores.${name}.fallback`, fallback?.store);
    check(`stores.${name}.near`, near?.store);
  }
}

/**
 * Checks the names in the table `stores` as far as the file itself tells: no rule names a misspelt one, which can be that of the gate's
 * first store only if it is not near a name that rules have, and if it is the only one.
 */
export function checkOwnStores(rules: Rules): void {
  const known = counting(rules);
  const usesFirst = rules.rules.some(({ store }) => store === undefined);
  let first: string | undefined;
  for (const name of rules.rules.length > 0 ? unnamed(rules) : []) {
    const nearest = suggestion(name, known);
    if (first === undefined && usesFirst && !nearest.startsWith("did you mean")) {
      first = name;
      continue;
    }
    const isSecond = first !== undefined && known.length === 0;
    const fix = isSecond ? `: the gate's first store can be ${quoted(first!)}; write one of them` : `; ${nearest}`;
    throw invalid(`stores.${name}`, `no rule counts in this store${fix}`);
  }
}
