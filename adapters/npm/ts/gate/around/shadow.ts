import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import { ALLOWED, STATUS } from "../../numbers.js";
import type { Asked, Check, Settlement } from "../asked.js";
import type { RulesPolicy } from "../policy.js";
import { keysOf } from "./keys.js";

/** How often a proposal would have decided differently. */
export interface Counts {
  bothAdmit: number;
  bothDeny: number;
  onlyProposalDenies: number;
  onlyCurrentDenies: number;
  /** Checks of the proposal that failed. */
  failed: number;
}

/**
 * Tries a proposed limit on the checks by a policy of the same name, with counts of its own, and counts the differences. Only the
 * current limit decides. It does what core's `Shadow` does, to which `test/core-gate-around.test.mjs` holds it.
 */
export class Shadow implements Asked {
  readonly #limiter: Asked;
  readonly #proposal: RulesPolicy;
  readonly #counts: Counts = { bothAdmit: 0, bothDeny: 0, onlyProposalDenies: 0, onlyCurrentDenies: 0, failed: 0 };

  constructor(limiter: Asked, proposal: RulesPolicy) {
    this.#limiter = limiter;
    this.#proposal = proposal.withOwnCounts("~");
  }

  get capabilities(): Capabilities {
    return this.#limiter.capabilities;
  }

  /** The differences so far. */
  get counts(): Readonly<Counts> {
    return { ...this.#counts };
  }

  async check(check: Check): Promise<Decision> {
    const decision = await this.#limiter.check(check);
    if (check.policy.name === this.#proposal.name) this.#counts[await this.#compare(check, decision)] += 1;
    return decision;
  }

  async settle(settlement: Settlement): Promise<Decision> {
    try {
      return await this.#limiter.settle(settlement);
    } finally {
      if (settlement.policy.name === this.#proposal.name) {
        await this.#limiter.settle({ ...settlement, ...this.#proposed(settlement) }).catch(() => undefined);
      }
    }
  }

  async #compare(check: Check, current: Decision): Promise<keyof Counts> {
    try {
      const proposed = await this.#limiter.check({ ...check, ...this.#proposed(check), lease: undefined });
      if (proposed[STATUS] === ALLOWED) return current[STATUS] === ALLOWED ? "bothAdmit" : "onlyCurrentDenies";
      return current[STATUS] === ALLOWED ? "onlyProposalDenies" : "bothDeny";
    } catch {
      return "failed";
    }
  }

  #proposed({ keys }: Check | Settlement): Pick<Check, "policy" | "keys"> {
    return { policy: this.#proposal, keys: keysOf(this.#proposal, keys) };
  }
}
