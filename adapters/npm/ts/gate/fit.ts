import { TidegateError } from "../error.js";
import type { Composed } from "./around/compose.js";
import { need, suits } from "./around/suits.js";
import type { OwnStore } from "./stores.js";
import { suits as suitsAround } from "./rules/around.js";
import { quoted, suggestion } from "./rules/names.js";
import type { Rule, Rules } from "./rules/rules.js";

/** The rules for these stores, each of which must support the limits of its rules. Throws with the first rule whose store does not. */
export function fitted(rules: Rules, composed: readonly Composed[], stores: readonly OwnStore[]): Rules {
  const names = stores.map(({ name }) => name);
  return { ...rules, rules: rules.rules.map((rule) => fittedRule(rule, composed, names)) };
}

function fittedRule(rule: Rule, composed: readonly Composed[], names: readonly string[]): Rule {
  try {
    const { store, estimate, cost, policies } = rule;
    const place = store === undefined ? 0 : names.indexOf(store);
    if (place < 0) throw new TidegateError("invalid", `there is no store ${quoted(store!)}; ${suggestion(store!, names)}`);
    const { layer, rules: around } = composed[place]!;
    const can = layer.capabilities;
    const placed = can.dimensions === "grouped" ? policies.map((policy) => policy?.placed) : policies;
    need((can.idempotency && can.costs) || estimate === undefined, "settlements of an estimate");
    for (const policy of placed) {
      if (!policy) continue;
      suits(can, policy);
      need(can.costs || cost === 1, "a cost");
      if (around) suitsAround(around, policy);
    }
    return { ...rule, policies: placed };
  } catch (thrown) {
    throw about(rule, thrown);
  }
}

/** An error about a rule. */
function about({ name }: Rule, thrown: unknown): TidegateError {
  const { kind, message } = TidegateError.from(thrown);
  return TidegateError.from([kind, `rule ${quoted(name)}: ${message}`]);
}
