import type { BucketState } from "../../core/algorithms/algorithm.js";
import type { TokenBucket } from "../../core/algorithms/buckets.js";
import { MAX_SKEW, since } from "../../core/arithmetic.js";
import type { Decision } from "../../core/decide.js";
import { EACH, QUOTAS } from "../../decision_numbers.js";

/** How much over-admission the isolates pay back once they know of each other, in whole buckets. */
const OWED_MAX = 8;

/** Rules compute with levels up to this one, which is above any capacity. */
const LEVEL_MAX = 2 ** 52;

/** The largest integer of the Rust. */
const LARGEST = 2n ** 64n - 1n;

/** A whole number of up to 64 bits. */
export type Long = number | bigint;

/** The same number, which is a bigint only if a double does not have it. */
export function plain(long: bigint): Long {
  return long <= Number.MAX_SAFE_INTEGER ? Number(long) : long;
}

/** What is above the largest integer is cut off. */
export function cut(long: bigint): bigint {
  return long < LARGEST ? long : LARGEST;
}

/** A report of another isolate. */
interface News {
  state: BucketState;
  /** When it last charged. */
  at: number;
  /** How much its total has grown since its previous report, and when it had last charged by then. Undefined for a first report. */
  grown: { units: bigint; since: number } | undefined;
}

/**
 * A lower bound on the level of a bucket that several isolates charge.
 *
 * Each isolate reports the total that it has charged, which only grows, and its own level. The levels do not add up, because each drains
 * at the full rate. When a total has grown since the last report, the isolate charged the difference at some times in between. Taking the
 * earliest of these times gives the lowest level that is possible now:
 *
 * - While this bucket was not empty, nothing drained in vain, so the growth counts in full.
 * - Before that, the growth counts less what would have drained.
 *
 * The long-run rate of busy isolates therefore approaches the refill rate, and no request is denied that the true level admits.
 * (Lindley's recursion: a later arrival never leaves a lower level.)
 */
export class SharedBucket {
  #level: Long = 0;
  #at = 0;
  /** Since when the level has been above zero. */
  #busySince = 0;

  /** The state to decide by. A higher level is denied in the same way, but not for as long: see `correct`. */
  state(rule: TokenBucket, now: number): BucketState {
    const [level, at] = [this.#level, this.#at];
    if (level <= LEVEL_MAX) return { level: Number(level), at };
    const left = levelAt(rule, level, at, now);
    return { level: left <= LEVEL_MAX ? Number(left) : LEVEL_MAX, at: Math.max(at, now) };
  }

  /** Moves a level that lies after `latest` back to it. */
  moveBack(latest: number): void {
    this.#at = Math.min(this.#at, latest);
    this.#busySince = Math.min(this.#busySince, latest);
  }

  /** Counts what this isolate has admitted. */
  charge(rule: TokenBucket, now: number, cost: number): void {
    this.#advance(rule, now);
    this.#level = Number(this.#level) + cost * rule.unit;
  }

  /** Counts what another isolate has admitted. */
  hear(rule: TokenBucket, now: number, { state, at, grown }: News): void {
    this.#advance(rule, now);
    const [before, alone] = [BigInt(this.#level), BigInt(levelAt(rule, state.level, state.at, this.#at))];
    let [added, from] = [alone, at];
    // If it is the first report: two buckets drain at least as fast as one, so this one still holds what the isolate's own one does.
    if (grown) {
      const idle = cut(BigInt(since(this.#busySince, grown.since)) * BigInt(rule.last));
      added = most(cut(grown.units * BigInt(rule.unit)) - idle, 0n);
      from = grown.since;
    }
    const level = most(before + added, alone);
    if (added > 0n) this.#busySince = Math.min(this.#busySince, from);
    else if (level > before) this.#busySince = Math.min(this.#busySince, at);
    const bound = BigInt(1 + OWED_MAX) * BigInt(rule.full);
    this.#level = plain(most(level < bound ? level : bound, before));
  }

  /** Puts the reset of a level above `LEVEL_MAX` into a decision, and returns the wait of a denial by it. Undefined for other levels. */
  correct(decision: Decision, nth: number, rule: TokenBucket, now: number, cost: number): bigint | undefined {
    const level = levelAt(rule, this.#level, this.#at, now);
    if (level <= LEVEL_MAX) return undefined;
    const last = BigInt(rule.last);
    const drainedAfter = (level: bigint) => BigInt(Math.min(since(this.#at, now), MAX_SKEW)) + (level + last - 1n) / last;
    decision[QUOTAS + EACH * nth + 2] = Number(drainedAfter(BigInt(level)));
    return drainedAfter(BigInt(level) + BigInt(cost * rule.unit - rule.full));
  }

  #advance(rule: TokenBucket, now: number): void {
    const instant = Math.max(now, this.#at);
    this.#level = levelAt(rule, this.#level, this.#at, instant);
    this.#at = instant;
    if (this.#level === 0) this.#busySince = instant;
  }
}

/** The level that is left of one. A product that is rounded is above any number. */
export function levelAt({ last }: TokenBucket, level: Long, at: number, now: number): Long {
  const span = since(now, at);
  return typeof level === "number" ? Math.max(level - span * last, 0) : plain(most(level - BigInt(span) * BigInt(last), 0n));
}

function most(one: bigint, other: bigint): bigint {
  return one > other ? one : other;
}
