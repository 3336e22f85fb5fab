import { TidegateError } from "../error.js";
import type { Composed } from "./combinators/compose.js";
import { checkPolicy, checkSupport } from "./combinators/store_support.js";
import { quoted } from "./rules/quoted_text.js";
import type { Rule, Rules } from "./rules/rules.js";
import { checkNear } from "./rules/store_rules.js";
import { suggestion } from "./rules/suggestion.js";
import type { OwnStore } from "./stores.js";

/** The rules for these stores, each of which must support the limits of its rules. Throws with the first rule whose store does not. */
export function fitted(rules: Rules, composed: readonly Composed[], stores: readonly OwnStore[]): Rules {
  const names = stores.map(({ name }) => name);
  const isFixed = ({ store }: Rule) => stores[store === undefined ? 0 : names.indexOf(store)]!.capabilities.class === "per_location";
  const fit = (rule: Rule) => {
    const fitted = fittedRule(rule, composed, names);
    if (rules.thresholds?.has(rule) && isFixed(rule)) throw about(rule, new TidegateError("unsupported", "this store does not tell what is used, and so warns of nothing; delete warn_at"));
    return fitted;
  };
  const found = { ...rules, rules: rules.rules.map(fit) };
  rules.numbers?.fit(found, found.rules.filter(isFixed));
  return found;
}

function fittedRule(rule: Rule, composed: readonly Composed[], names: readonly string[]): Rule {
  try {
    const { store, estimate, cost, policies } = rule;
    const place = store === undefined ? 0 : names.indexOf(store);
    if (place < 0) throw new TidegateError("invalid", `there is no store ${quoted(store!)}; ${suggestion(store!, names)}`);
    const { layer, rules: around } = composed[place]!;
    const can = layer.capabilities;
    const placed = can.dimensions === "grouped" ? policies.map((policy) => policy?.placed) : policies;
    checkSupport((can.idempotency && can.costs) || estimate === undefined, "settlements of an estimate");
    for (const policy of placed) {
      if (!policy) continue;
      checkPolicy(can, policy);
      checkSupport(can.costs || cost === 1, "a cost");
      if (around) checkNear(around, policy);
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
