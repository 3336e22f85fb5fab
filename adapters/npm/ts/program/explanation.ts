import { written as addressText } from "../core/address.js";
import { TidegateError } from "../error.js";
import { explained, othersOf } from "../gate/explain.js";
import type { Facts } from "../gate/request_facts.js";
import { costOf, policyFor } from "../gate/rules/find_rules.js";
import type { Rule, Rules } from "../gate/rules/rules.js";
import type { RulesPolicy } from "../gate/rules_policy.js";
import type { Sender } from "../gate/sender.js";
import { leaseOf } from "./lease_json.js";
import { policyOf } from "./policy_json.js";

/** Which rule, keys and limits apply to a request, and why. */
export class Explanation {
  /** The key of each dimension of the policy, in its order, or why there is none. */
  readonly keys: readonly (string | TidegateError)[];
  /** Why the request cannot be decided: a key that the application has to give, or a limit that cannot be read. */
  readonly error: TidegateError | undefined;
  readonly #rules: Rules;
  /** The rules that apply. */
  readonly #applied: readonly Rule[];
  readonly #facts: Facts;
  readonly #sender: Sender;
  /** Undefined if the request is not limited, or its rules cannot be decided together. */
  readonly #policy: RulesPolicy | undefined;

  constructor(rules: Rules, applied: readonly Rule[], facts: Facts, sender: Sender) {
    [this.#rules, this.#applied, this.#facts, this.#sender] = [rules, applied, facts, sender];
    const isRefused = typeof sender.claims === "string" && applied.some(({ refusesInvalidTokens }) => refusesInvalidTokens);
    const isLimited = applied.length > 0 && this.#listed === null && !isRefused;
    const policy = isLimited ? caught(() => policyFor(rules, applied, sender.tier)) : undefined;
    const numbers = policy && !(policy instanceof TidegateError) ? rules.numbers!.explain(policy, sender) : undefined;
    this.#policy = numbers?.policy;
    this.keys = this.#policy?.dimensions.map(({ name }) => caught(() => sender.key(name))) ?? [];
    this.error = this.keys.find((key) => key instanceof TidegateError) ?? numbers?.error;
  }

  /** For people. Nobody knows which store is the gate's first. */
  get text(): string {
    const replaced = this.#rules.stores.flatMap(({ name, fallback }) => (fallback ? [`, unless the first store is ${name}, in whose place ${fallback.store} decides first`] : []));
    const unless = this.#applied[0]?.store === undefined ? replaced.join("") : "";
    return explained(this.#rules, this.#applied, this.#facts, this.#sender, undefined, unless);
  }

  /** For programs. */
  get json(): object {
    const [rules, applied, sender, policy] = [this.#rules, this.#applied, this.#sender, this.#policy];
    const [rule, ...also] = applied;
    const { client, verified, claims, tier } = sender;
    const names = (some: readonly Rule[]) => some.map(({ name }) => name);
    return {
      rule: rule?.name ?? null,
      also: names(also),
      others: names(othersOf(rules, applied, this.#facts)),
      address: client?.name === undefined ? null : addressText(client.address),
      token: claims === undefined ? null : typeof claims === "string" ? claims : "valid",
      verified: verified ?? null,
      tier: tier === undefined ? null : rules.tiers[tier],
      listed: this.#listed,
      challenge: applied.find(({ challenge }) => challenge !== undefined)?.challenge ?? null,
      cost: rule ? costOf(applied, tier) : 1,
      policy: policy ? policyOf(policy) : null,
      keys: this.keys.map((key, nth) => ({ dimension: policy!.dimensions[nth]!.name, ...(typeof key === "string" ? { key } : { error: key.message }) })),
      lease: policy && rule?.lease ? leaseOf(rule.lease) : null,
      store: rule?.store ?? null,
    };
  }

  /** The list that the sender is on. */
  get #listed(): "deny" | "allow" | null {
    if (this.#sender.isOn(this.#rules.denied)) return "deny";
    return this.#sender.isOn(this.#rules.allowed) ? "allow" : null;
  }
}

function caught<T>(act: () => T): T | TidegateError {
  try {
    return act();
  } catch (thrown) {
    return TidegateError.from(thrown);
  }
}
