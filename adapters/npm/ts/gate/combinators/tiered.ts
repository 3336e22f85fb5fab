import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import { ALLOWED, BINDING, FROM_NEAR, ORIGIN, QUOTAS, STATUS } from "../../decision_numbers.js";
import { isStoreFailure } from "../../error.js";
import type { Layer } from "../../layer.js";
import { CHECK, type Question } from "../../question.js";
import type { RulesPolicy } from "../rules_policy.js";
import { askedBy } from "./other_policy.js";
import { checkPolicy } from "./store_support.js";

/**
 * Asks a cheap store first, by a policy of its own with one dimension, and the strict limiter only about what that admits. If the
 * cheap one fails, the strict one decides alone. A check with a token goes to the strict one only, because a retry must get the first
 * answer. It does what core's `Tiered` does, to which `test/core-gate-around.test.mjs` holds it.
 */
export class Tiered implements Layer {
  readonly #near: Layer;
  readonly #policy: RulesPolicy;
  readonly #far: Layer;

  /** Throws if the cheap store cannot count by the policy. */
  constructor(near: Layer, policy: RulesPolicy, far: Layer) {
    checkPolicy(near.capabilities, policy);
    this.#near = near;
    this.#policy = policy;
    this.#far = far;
  }

  get capabilities(): Capabilities {
    return this.#far.capabilities;
  }

  async ask(question: Question): Promise<Decision> {
    const isFirst = question.kind === CHECK && question.token === undefined;
    return (isFirst && (await this.#denial(question))) || this.#far.ask(question);
  }

  async #denial(check: Question): Promise<Decision | undefined> {
    const near = askedBy(this.#policy, check);
    if (!this.#near.capabilities.costs) near.cost = 1;
    let decision: Decision;
    try {
      decision = await this.#near.ask(near);
    } catch (thrown) {
      if (isStoreFailure(thrown)) return undefined;
      throw thrown;
    }
    if (decision[STATUS] === ALLOWED) return undefined;
    // The counts of the strict limiter are not known.
    const denial = [...decision.slice(0, QUOTAS), ...check.policy.uncounted];
    [denial[BINDING], denial[ORIGIN]] = [0, FROM_NEAR];
    return denial;
  }
}
