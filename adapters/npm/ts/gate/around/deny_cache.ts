import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import { type Bounds, Denials } from "../../denials.js";
import { FROM_FALLBACK, ORIGIN } from "../../numbers.js";
import type { Asked, Check, Settlement } from "../asked.js";
import { nameOf } from "./keys.js";

/**
 * Denies a key that was denied before without asking the limiter, until its wait is over. It does what core's `DenyCache` does, to
 * which `test/core-gate-around.test.mjs` holds it.
 */
export class DenyCache implements Asked {
  readonly #limiter: Asked;
  readonly #denials: Denials;

  constructor(limiter: Asked, bounds: Bounds) {
    this.#limiter = limiter;
    this.#denials = new Denials(bounds);
  }

  get capabilities(): Capabilities {
    return this.#limiter.capabilities;
  }

  async check(check: Check): Promise<Decision> {
    const { policy, keys, cost, now, token } = check;
    const [denials, name] = [this.#denials, nameOf(policy, keys)];
    // A check with a token may have been admitted before, and a denial that is charged changes what is denied.
    const mayBeRecalled = token === undefined && !policy.chargeDenied;
    const recalled = denials.recall(name, cost, now, policy.text);
    if (recalled && mayBeRecalled) return recalled;
    const { forgotten } = denials;
    const decision = await this.#limiter.check(check);
    // What replaces a store that is down does not know what the store would say.
    if (mayBeRecalled && decision[ORIGIN] !== FROM_FALLBACK) denials.remember(name, cost, now, decision, forgotten, policy.text);
    return decision;
  }

  /** Forgets a denial even if the call fails, because the settlement may have been applied. */
  async settle(settlement: Settlement): Promise<Decision> {
    try {
      return await this.#limiter.settle(settlement);
    } finally {
      const { policy, keys } = settlement;
      // Others may share one of several keys, and be denied by it.
      this.#denials.forget(policy.dimensions.length > 1 ? undefined : nameOf(policy, keys));
    }
  }
}
