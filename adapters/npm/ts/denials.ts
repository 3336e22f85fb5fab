import type { Decision } from "./core/decide.js";
import { AT, DENIED, EACH, FROM_DENY_CACHE, ORIGIN, QUOTAS, STATUS, UNKNOWN, WAIT } from "./numbers.js";

/** How long a denial is remembered at most, and how many are. */
export interface Bounds {
  readonly holdMs: number;
  readonly capacity: number;
}

/** A denial, with the times between which it holds. */
interface Denial {
  policy: string;
  cost: number;
  from: number;
  until: number;
  decision: Decision;
}

/** The denials that a deny cache remembers, by the names of the keys that were denied. */
export class Denials {
  readonly #bounds: Bounds;
  readonly #denials = new Map<string, Denial>();
  #forgotten = 0;

  constructor(bounds: Bounds) {
    this.#bounds = bounds;
  }

  /** How often denials were forgotten. */
  get forgotten(): number {
    return this.#forgotten;
  }

  /** What remains of the denial of an equal request. Undefined if none holds. `policy` is the text of one, if there are several. */
  recall(name: string, cost: number, now: number, policy = ""): Decision | undefined {
    const denial = this.#denials.get(name);
    if (denial === undefined) return undefined;
    // If the clock steps back, it does not hold again: the store uses the later time.
    if (now >= denial.until) this.#denials.delete(name);
    if (now >= denial.until || denial.from > now || denial.cost !== cost || denial.policy !== policy) return undefined;
    const elapsed = now - denial.from;
    const recalled = [...denial.decision];
    recalled[WAIT] = Math.max(recalled[WAIT]! - elapsed, 0);
    recalled[AT]! += elapsed;
    recalled[ORIGIN] = FROM_DENY_CACHE;
    // The counts have changed since, and are not known.
    for (let at = QUOTAS; at < recalled.length; at += EACH) recalled.fill(UNKNOWN, at + 1, at + EACH);
    return recalled;
  }

  /** Remembers a decision if it is a denial that ends. `forgotten` is how often denials were forgotten when it was asked for. */
  remember(name: string, cost: number, now: number, decision: Decision, forgotten: number, policy = ""): void {
    const wait = decision[WAIT]!;
    // An answer that was on its way while others were forgotten may be older than what has changed them.
    if (decision[STATUS] !== DENIED || wait === UNKNOWN || forgotten !== this.#forgotten) return;
    const [denials, { holdMs, capacity }] = [this.#denials, this.#bounds];
    if (denials.size >= capacity && !denials.has(name)) {
      for (const [name, { until }] of denials) if (now >= until) denials.delete(name);
      if (denials.size >= capacity) denials.clear();
    }
    denials.set(name, { policy, cost, from: now, until: now + Math.min(wait, holdMs), decision });
  }

  /** Forgets the denial of this name, or all. */
  forget(name: string | undefined): void {
    this.#forgotten += 1;
    if (name === undefined) this.#denials.clear();
    else this.#denials.delete(name);
  }
}
