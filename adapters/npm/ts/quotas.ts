// The quotas that functions make. Each brings its own algorithm, so that an application loads those that it uses.

import * as rules from "./core/algorithms/make_algorithm.js";
import type { Part, ReadyQuota } from "./core/policy.js";
import { invalid } from "./error.js";
import { Fields, flag, shown, whole } from "./fields.js";
import { type LoadedQuota, namesIn, type QuotaKind, READY } from "./loaded_policy.js";
import { spanOf } from "./span.js";

/** What a quota has beside its numbers. */
export interface QuotaOptions {
  /** What response fields show. */
  name?: string | undefined;
  /** The dimension by whose key the quota counts. Default: the request's sender. */
  by?: string | undefined;
}

/**
 * At most `limit` units in each window, all of which begin at multiples of their length: `fixedWindow(100, "1 min")`. The units of time are
 * ms, s, min, h and d, also as words.
 */
export function fixedWindow(limit: number, window: string, options?: QuotaOptions): LoadedQuota<"fixed_window"> {
  const right = 'fixedWindow(100, "1 min")';
  return made(rules.makeFixedWindow, 0, number("limit", limit, right), spanOf("window", window, right), 0, options);
}

/** At most `limit` units in a window, as two counters estimate it: `slidingWindow(100, "1 min")`. It may admit almost twice the limit in one window. */
export function slidingWindow(limit: number, window: string, options?: QuotaOptions): LoadedQuota<"sliding_window"> {
  const right = 'slidingWindow(100, "1 min")';
  return made(rules.makeSlidingWindow, 1, number("limit", limit, right), spanOf("window", window, right), 0, options);
}

/** At most `limit` units in any window: `slidingLog(10, "10 s")`. It remembers each request, so its limit is at most 1,000. */
export function slidingLog(limit: number, window: string, options?: QuotaOptions): LoadedQuota<"sliding_log"> {
  const right = 'slidingLog(10, "10 s")';
  return made(rules.makeSlidingLog, 2, number("limit", limit, right), spanOf("window", window, right), 0, options);
}

/** A bucket of `capacity` units, which gets `refill` back in each span: `tokenBucket(100, 10, "1 s")`. */
export function tokenBucket(capacity: number, refill: number, per: string, options?: QuotaOptions): LoadedQuota<"token_bucket"> {
  const right = 'tokenBucket(100, 10, "1 s")';
  return made(rules.makeTokenBucket, 3, number("capacity", capacity, right), spanOf("per", per, right), number("refill", refill, right), options);
}

/** The same, which says by `delayMs` how long to delay each request, so that they leave it at one rate: `leakyBucket(100, 10, "1 s")`. */
export function leakyBucket(capacity: number, refill: number, per: string, options?: QuotaOptions): LoadedQuota<"leaky_bucket"> {
  const right = 'leakyBucket(100, 10, "1 s")';
  return made(rules.makeLeakyBucket, 4, number("capacity", capacity, right), spanOf("per", per, right), number("refill", refill, right), options);
}

/**
 * Blocks a key that another quota has denied: first for `base`, then `factor` times longer each time, up to `cap`:
 * `penalty("1 min", 2, "1 h")`.
 */
export function penalty(base: string, factor: number, cap: string, options?: QuotaOptions): LoadedQuota<"penalty"> {
  const right = 'penalty("1 min", 2, "1 h")';
  return made(rules.makePenalty, 6, spanOf("cap", cap, right), spanOf("base", base, right), number("factor", factor, right), options);
}

/**
 * At most `limit` requests in flight: `concurrency(10, "30 s")`. Each holds a slot until `Tidegate` releases it, or its lifetime is over. With
 * `returnsCost`, what other quotas were charged is returned with the slot.
 */
export function concurrency(limit: number, lifetime: string, options: QuotaOptions & { returnsCost?: boolean | undefined } = {}): LoadedQuota<"concurrency"> {
  const right = 'concurrency(10, "30 s")';
  const { returnsCost = false, ...names } = options;
  const [most, span] = [number("limit", limit, right), spanOf("lifetime", lifetime, right)];
  return made(rules.makeConcurrency, 5, most, span, Number(flag("returnsCost", returnsCost)), names, "a slot is released");
}

/** Counts nothing: a place for the blocks that `Tidegate` sets with `block`, of at most this span: `block("1 d")`. A penalty takes them, too. */
export function block(cap: string, options?: QuotaOptions): LoadedQuota<"block"> {
  return made(rules.makeBlock, 7, spanOf("cap", cap, 'block("1 d")'), 0, 0, options, "a block is set");
}

/** Checks the numbers. `algorithm` is its place in `ALGORITHMS`. */
function made<Kind extends QuotaKind>(
  rule: rules.Maker,
  algorithm: number,
  amount: number,
  span: number,
  refill: number,
  options: QuotaOptions = {},
  changes?: string,
): LoadedQuota<Kind> {
  const names = namesIn(new Fields(options, "", ["name", "by"]));
  const numbers = rule("", amount, span, refill);
  // It is no part of a policy's text.
  const part: Part & { toJSON(): undefined } = { rule: () => numbers, toJSON: () => undefined, ...(changes && { changes }) };
  const ready: ReadyQuota = { algorithm, place: "", amount, span, refill, name: undefined, by: undefined, part };
  return { [READY]: ready, ...names };
}

function number(name: string, value: unknown, right: string): number {
  if (typeof value !== "number") throw invalid(name, `${shown(value)} is not a number; write ${right}`);
  return whole(name, value);
}
