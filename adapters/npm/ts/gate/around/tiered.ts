import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import { isStoreFailure } from "../../error.js";
import { ALLOWED, BINDING, FROM_NEAR, ORIGIN, QUOTAS, STATUS, UNKNOWN } from "../../numbers.js";
import type { Asked, Check, Settlement } from "../asked.js";
import type { RulesPolicy } from "../policy.js";
import { keysOf } from "./keys.js";
import { suits } from "./suits.js";

/**
 * Asks a cheap store first, by a policy of its own with one dimension, and the strict limiter only about what that admits. If the
 * cheap one fails, the strict one decides alone. A check with a token goes to the strict one only, because a retry must get the first
 * answer. It does what core's `Tiered` does, to which `test/core-gate-around.test.mjs` holds it.
 */
export class Tiered implements Asked {
  readonly #near: Asked;
  readonly #policy: RulesPolicy;
  readonly #far: Asked;

  /** Throws if the cheap store cannot count by the policy. */
  constructor(near: Asked, policy: RulesPolicy, far: Asked) {
    suits(near.capabilities, policy);
    this.#near = near;
    this.#policy = policy;
    this.#far = far;
  }

  get capabilities(): Capabilities {
    return this.#far.capabilities;
  }

  async check(check: Check): Promise<Decision> {
    const denial = check.token === undefined ? await this.#denial(check) : undefined;
    return denial ?? this.#far.check(check);
  }

  settle(settlement: Settlement): Promise<Decision> {
    return this.#far.settle(settlement);
  }

  async #denial({ policy, keys, cost, now, isTimed }: Check): Promise<Decision | undefined> {
    const near = { policy: this.#policy, keys: keysOf(this.#policy, keys), cost: this.#near.capabilities.costs ? cost : 1, now, isTimed };
    let decision: Decision;
    try {
      decision = await this.#near.check({ ...near, token: undefined, ttlMs: 0, lease: undefined });
    } catch (thrown) {
      if (isStoreFailure(thrown)) return undefined;
      throw thrown;
    }
    if (decision[STATUS] === ALLOWED) return undefined;
    // The counts of the strict limiter are not known.
    const denial = [...decision.slice(0, QUOTAS), ...policy.quotas.flatMap(({ rule }) => [rule.limit, UNKNOWN, UNKNOWN])];
    [denial[BINDING], denial[ORIGIN]] = [0, FROM_NEAR];
    return denial;
  }
}
