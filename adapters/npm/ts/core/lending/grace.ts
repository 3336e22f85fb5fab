import { EACH, QUOTAS } from "../../decision_numbers.js";
import { later, MAX_INSTANT } from "../arithmetic.js";
import type { Decision } from "../decide.js";

/**
 * What a decision tells of all quotas: the fewest units that remain in one, whether each has at least half of its limit left, and how long
 * until all are unused. A store tells all of it.
 */
export type Seen = readonly [left: number, isHalfLeft: boolean, unused: number];

export function seenIn(decision: Decision): Seen {
  let [left, isHalfLeft, unused]: [number, boolean, number] = [Infinity, true, 0];
  for (let at = QUOTAS; at < decision.length; at += EACH) {
    const remaining = decision[at + 1]!;
    left = Math.min(left, remaining);
    isHalfLeft &&= remaining >= decision[at]! - remaining;
    unused = Math.max(unused, decision[at + 2]!);
  }
  return [left, isHalfLeft, unused];
}

/**
 * How a borrower has last seen a key. `GOOD`: not at all, or with at least half of each limit left. `NEAR`: with less left, and it gets no
 * grace until it is seen well below its limit. `OVERDRAWN`: at its limit, after a grace, and it gets none until it is unused.
 */
const GOOD = 0;
const NEAR = 1;
const OVERDRAWN = 2;

/** What a borrower has admitted of a key without a loan, and whether it may admit more. */
export class Grace {
  /** Admitted, and not known to be charged. */
  owed = 0;
  /** The part of it that the question under way tells. */
  told = 0;
  /**
   * Whether an answer was lost. Until the next one, only questions that nobody waits for tell what is owed: one that the store does not
   * understand must not fail a check.
   */
  isLost = false;
  /** When the key is unused, if it gets no grace and nothing else arrives. */
  until = 0;
  #seen: typeof GOOD | typeof NEAR | typeof OVERDRAWN = GOOD;

  /** Admits a cost, if what is owed is then at most the grace. */
  admits(cost: number, grace: number, now: number): boolean {
    const admits = cost > 0 && this.wouldAdmit(cost, grace, now);
    if (admits) this.owed += cost;
    return admits;
  }

  /** Whether it admits a cost that is not 0. */
  wouldAdmit(cost: number, grace: number, now: number): boolean {
    // At the end of time, nothing would end it.
    return this.owed + cost <= grace && !this.isLost && now < MAX_INSTANT && this.#sight(now) === GOOD;
  }

  /** What a question tells that is asked along with a check of this cost. */
  tell(cost: number): number {
    this.told = this.isLost && cost > 0 ? 0 : this.owed;
    return this.told;
  }

  /** The question has no answer. */
  lost(): void {
    this.isLost ||= this.told > 0;
    this.told = 0;
  }

  /** Takes the answer to a question that was asked at `from` and is answered at `to` at the latest. */
  answered(isAllowed: boolean, [left, isHalfLeft, unused]: Seen, from: number, to: number): void {
    const isOverdrawn = this.#sight(from) === OVERDRAWN || (this.told > 0 && !(isAllowed && left > 0));
    this.owed -= this.told;
    this.told = 0;
    this.isLost &&= this.owed > 0;
    this.#seen = isOverdrawn ? OVERDRAWN : isHalfLeft ? GOOD : NEAR;
    this.until = this.#seen === GOOD ? 0 : later(to, unused);
  }

  /** The key has another policy now, by which it has not been seen. */
  change(now: number, until: number): void {
    if (this.#sight(now) === GOOD) [this.#seen, this.until] = [NEAR, until];
  }

  #sight(now: number): typeof GOOD | typeof NEAR | typeof OVERDRAWN {
    return now < this.until ? this.#seen : GOOD;
  }
}
