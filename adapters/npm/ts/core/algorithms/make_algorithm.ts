import { invalid } from "../../error.js";
import { MAX_UNITS } from "../arithmetic.js";
import type { ReadyQuota } from "../policy.js";
import { type Rule, YEAR } from "./algorithm.js";
import { LeakyBucket, TokenBucket } from "./buckets.js";
import { Penalty } from "./penalty.js";
import { Concurrency, SlidingLog } from "./remembered_requests.js";
import { FixedWindow, SlidingWindow } from "./windows.js";

/** The largest limit of an algorithm that remembers each request. */
const REMEMBERED_MAX = 1_000;

/** The place of an algorithm in `ALGORITHMS`, as a quota of the options has it. */
export const FIXED_WINDOW = 0;

/** Makes an algorithm of its numbers: see `ReadyQuota`. Throws what is wrong with them, which are at a place of the options. */
export type Maker = (place: string, amount: number, span: number, refill: number) => Rule;

// Each is a function of its own, so that only who uses an algorithm loads it.

export const makeFixedWindow: Maker = (place, limit, windowMs) => {
  checkWindow(place, limit, windowMs);
  return new FixedWindow(limit, windowMs, 0);
};

export const makeSlidingWindow: Maker = (place, limit, windowMs) => {
  checkWindow(place, limit, windowMs);
  return new SlidingWindow(limit, windowMs, 0);
};

export const makeSlidingLog: Maker = (place, limit, windowMs) => {
  checkWindow(place, limit, windowMs);
  remembered(place, limit, "a sliding log, which remembers every request", " or take a sliding window");
  return new SlidingLog(limit, windowMs, 0);
};

export const makeTokenBucket: Maker = (...numbers) => new TokenBucket(...bucket(...numbers));
export const makeLeakyBucket: Maker = (...numbers) => new LeakyBucket(...bucket(...numbers));

export const makeConcurrency: Maker = (place, limit, lifetimeMs, returnsCost) => {
  checked(place, "limit", limit, "lifetimeMs", lifetimeMs);
  remembered(place, limit, "a concurrency limit, which remembers every holder", "");
  return new Concurrency(limit, lifetimeMs, returnsCost);
};

export const makePenalty: Maker = (place, capMs, baseMs, factor) => {
  within(place, "baseMs", baseMs, 1, YEAR, ", or a block in place of the penalty if violations do not block");
  if (factor === 0 || factor > MAX_UNITS) throw outOfRange(place, "factor", factor, `a whole number from 1 to ${MAX_UNITS}`);
  if (capMs < baseMs || capMs > YEAR) throw outOfRange(place, "capMs", capMs, `a whole number of milliseconds from ${baseMs} (baseMs) to ${YEAR}`);
  return new Penalty(capMs, baseMs, factor);
};

export const makeBlock: Maker = (place, capMs) => {
  within(place, "capMs", capMs, 1, YEAR, "");
  return new Penalty(capMs, 0, 1);
};

/** Any algorithm, by its place in `ALGORITHMS`. */
export function anyRule(ready: ReadyQuota, path: string): Rule {
  const place = path + ready.place;
  const makers = [makeFixedWindow, makeSlidingWindow, makeSlidingLog, makeTokenBucket, makeLeakyBucket, makeConcurrency, makePenalty, makeBlock];
  return ready.part?.rule(ready, place) ?? makers[ready.algorithm]!(place, ready.amount, ready.span, ready.refill);
}

/** Throws what is wrong with the numbers of a window. */
export function checkWindow(place: string, limit: number, windowMs: number): void {
  within(place, "windowMs", windowMs, 1, MAX_UNITS, "");
  checkedAmount(place, "limit", limit, MAX_UNITS);
}

/** The numbers of a bucket. */
function bucket(place: string, capacity: number, perMs: number, refill: number): [capacity: number, perMs: number, refill: number] {
  checked(place, "refill", refill, "a millisecond", 1);
  // Only if the numbers as they are written are too large: a stored level is in their units.
  if (perMs > 0 && capacity * perMs > MAX_UNITS) {
    const divisor = commonDivisor(refill, perMs);
    if (divisor > 1 && capacity <= Math.floor(MAX_UNITS / (perMs / divisor))) return [capacity, perMs / divisor, refill / divisor];
  }
  checked(place, "capacity", capacity, "perMs", perMs);
  return [capacity, perMs, refill];
}

function commonDivisor(one: number, other: number): number {
  return other === 0 ? one : commonDivisor(other, one % other);
}

/** Checks an amount and a span, whose product has a bound, too. */
function checked(place: string, amountName: string, amount: number, spanName: string, span: number): void {
  within(place, spanName, span, 1, MAX_UNITS, "");
  const most = Math.floor(MAX_UNITS / span);
  if (amount <= most || amount > MAX_UNITS) return checkedAmount(place, amountName, amount, most);
  const longest = Math.floor(MAX_UNITS / amount);
  const right = `a whole number from 1 to ${most}, or a ${spanName} of at most ${longest}, or count in units of ${Math.ceil(amount / most)}`;
  throw outOfRange(place, amountName, amount, right);
}

/** Throws that an amount is out of range. */
export function checkedAmount(place: string, name: string, amount: number, most: number): void {
  if (amount < 1 || amount > most) throw outOfRange(place, name, amount, `a whole number from 1 to ${most}`);
}

function within(place: string, name: string, span: number, least: number, most: number, or: string): void {
  if (span < least || span > most) throw outOfRange(place, name, span, `a whole number of milliseconds from ${least} to ${most}${or}`);
}

function remembered(place: string, limit: number, what: string, or: string): void {
  if (limit <= REMEMBERED_MAX) return;
  throw invalid(`${place}limit`, `${limit} is out of range for ${what}; write at most ${REMEMBERED_MAX}${or}`);
}

function outOfRange(place: string, name: string, value: number, right: string): unknown {
  return invalid(place + name, `${value} is out of range; write ${right}`);
}
