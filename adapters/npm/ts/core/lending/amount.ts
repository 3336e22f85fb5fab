import { since } from "../arithmetic.js";
import { LOANS_MAX, UNITS_MAX, WITHIN_MAX } from "./lender.js";

/** Fewer units than this are a few. Then loans about double as they are spent: 1, 2, 4, 8. */
const FEW = 32;

/**
 * Nobody misses one of so many parts of what is left. A borrower asks for as much before it knows anything of its requests, and all
 * borrowers of a key together do not return as much when they are idle.
 */
const UNMISSED = 4_096;

/** Whether nobody misses so many units of what is left, even if each borrower holds as many. */
export function isUnmissed(units: number, left: number): boolean {
  return units <= Math.floor(left / (UNMISSED * LOANS_MAX));
}

/** So many units count of a key: what a few keys spend in great amounts is not usual. */
const OF_A_KEY = 8;

/** When there are so many keys, half of what is known of them is forgotten. */
const OF_KEYS = 256;

/** What keys usually spend after a first request, within a lifetime each: a mean in which the last keys count most. */
export class Usual {
  #keys = 0;
  #spent = 0;

  /** A key's first request. */
  begin(): void {
    if (this.#keys === OF_KEYS) [this.#keys, this.#spent] = [OF_KEYS / 2, Math.floor(this.#spent / 2)];
    this.#keys++;
  }

  /** A further one of a key that has spent so much. */
  count(spent: number, cost: number): void {
    this.#spent += Math.min(cost, since(OF_A_KEY, spent));
  }

  /** The units of a key, rounded up. */
  units(): number {
    return Math.ceil(this.#spent / Math.max(this.#keys, 1));
  }
}

/**
 * The units that a borrower wants, at most a slice, and the time in which it expects to spend them. Its requests have spent `spent` in
 * `within`, and `left` are left.
 */
export function wantedOf(spent: number, within: number, left: number, slice: number, lifetime: number): [wanted: number, within: number] {
  const [seen, span] = [Math.min(spent, UNITS_MAX), Math.min(Math.max(within, 1), WITHIN_MAX)];
  const expected = Math.floor((seen * lifetime) / span);
  // Requests do not come evenly: of independent ones, two standard deviations more than expected are enough most of the time. A few
  // requests tell little of those to come.
  const trusted = seen < FEW ? Math.ceil((2 * seen) / 3) : 2 * seen;
  // Below 2^52, a square root that is rounded to a double is never rounded up to a whole number.
  const likely = Math.min(Math.max(expected + 2 * Math.floor(Math.sqrt(expected)) + 2, Math.floor(seen / 4)), trusted);
  const wanted = Math.min(Math.max(likely, Math.floor(left / UNMISSED)), slice, UNITS_MAX);
  return [wanted, Math.floor((wanted * span) / Math.max(seen, 1))];
}
