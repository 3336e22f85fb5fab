import type { BucketState, SlidingState, State, WindowState } from "../../core/algorithms/algorithm.js";
import type { TokenBucket } from "../../core/algorithms/buckets.js";
import { FixedWindow, SlidingWindow } from "../../core/algorithms/windows.js";
import { copied, expiresAfter, moveBack } from "../../core/decide.js";
import type { Policy } from "../../core/policy.js";
import { moved, startOf } from "./account.js";
import { levelAt } from "./bucket.js";
import type { Origin } from "./table.js";

/** The number of groups. Networks whose hashes select the same group share a count. */
const CELLS = 1_024;

/** The most policies that a group counts. */
const POLICIES_MAX = 64;

interface Count {
  policy: Policy;
  states: State[];
}

/**
 * Remembers for each group of networks, and for each policy, the greatest count of any forgotten key.
 *
 * A key that the isolate does not hold starts with the count of its group. So no forgotten key gets back what it has used, and only keys
 * of the same group can cause a key to be denied early.
 */
export class Coarse {
  readonly #cells = new Map<number, Count[]>();

  /** An upper bound on what a forgotten key of this origin has used. Undefined if no such key was forgotten. */
  of(policy: Policy, { site, network }: Origin, now: number): State[] | undefined {
    const [one, other] = [this.#of(policy, site, now), this.#of(policy, network, now)];
    return one && other ? greatest(policy, one, other, now) : (one ?? other);
  }

  /**
   * Remembers what a key of this part of an origin has used, whose states are given up. Whether there is room: a group may count too many
   * policies already.
   */
  remember(part: number, policy: Policy, states: State[], now: number): boolean {
    const cell = part % CELLS;
    const counts = this.#cells.get(cell) ?? [];
    const known = counts.find((count) => count.policy.id === policy.id);
    if (known) {
      moveBack(policy, known.states, now);
      known.states = greatest(policy, known.states, states, now);
    } else if (counts.length < POLICIES_MAX) {
      counts.push({ policy, states });
      this.#cells.set(cell, counts);
    } else {
      return false;
    }
    return true;
  }

  #of({ id, quotas }: Policy, part: number, now: number): State[] | undefined {
    const cell = part % CELLS;
    const counts = this.#cells.get(cell);
    if (!counts) return undefined;
    const left = counts.filter(({ policy, states }) => {
      // What a wrong clock counted must not take up the group's room until that clock's time comes.
      moveBack(policy, states, now);
      return expiresAfter(policy, states, now) > 0;
    });
    if (left.length > 0) this.#cells.set(cell, left);
    else this.#cells.delete(cell);
    const states = left.find(({ policy }) => policy.id === id)?.states;
    return states && copied(quotas, states);
  }
}

/** States that have used as much of each quota as the greater of two. */
function greatest({ quotas }: Policy, ones: readonly State[], others: readonly State[], now: number): State[] {
  return quotas.map(({ rule }, nth) => {
    const pair = [ones[nth], others[nth]];
    if (rule instanceof FixedWindow) {
      const [one, other] = pair as [WindowState, WindowState];
      const current = startOf(now, rule.unit);
      const used = (state: WindowState) => (state.start >= current ? state.used : 0);
      return { start: Math.max(current, one.start, other.start), used: Math.max(used(one), used(other)) };
    }
    if (rule instanceof SlidingWindow) {
      const [one, other] = pair as [SlidingState, SlidingState];
      const start = Math.max(startOf(now, rule.unit), one.start, other.start);
      const [a, b] = [moved(rule, one, start), moved(rule, other, start)];
      return { start, previous: Math.max(a[0], b[0]), current: Math.max(a[1], b[1]) };
    }
    const [one, other] = pair as [BucketState, BucketState];
    const at = Math.max(one.at, other.at);
    const level = (state: BucketState) => Number(levelAt(rule as TokenBucket, state.level, state.at, at));
    return { level: Math.max(level(one), level(other)), at };
  });
}
