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

/** Throws what is wrong with the numbers of a window. */
export function checkWindow({ amount, span, place }: ReadyQuota, path: string): void {
  within(path + place, "windowMs", span, 1, MAX_UNITS, "");
  checkedAmount(path + place, "limit", amount, MAX_UNITS);
}

/** Any algorithm. */
export function anyRule(ready: ReadyQuota, path: string): Rule {
  const { algorithm, amount, span, refill, part } = ready;
  const place = path + ready.place;
  if (part) return part.rule(ready, place);
  switch (algorithm) {
    case FIXED_WINDOW:
      checkWindow(ready, path);
      return new FixedWindow(amount, span, 0);
    case 1:
      checkWindow(ready, path);
      return new SlidingWindow(amount, span, 0);
    case 2:
      checkWindow(ready, path);
      remembered(place, amount, "a sliding log, which remembers every request", " or take a sliding window");
      return new SlidingLog(amount, span, 0);
    case 3:
    case 4:
      return bucket(algorithm === 3 ? TokenBucket : LeakyBucket, place, amount, span, refill);
    case 5:
      checked(place, "limit", amount, "lifetimeMs", span);
      remembered(place, amount, "a concurrency limit, which remembers every holder", "");
      return new Concurrency(amount, span, refill);
    case 6:
      within(place, "baseMs", span, 1, YEAR, ", or a block in place of the penalty if violations do not block");
      if (refill === 0 || refill > MAX_UNITS) throw outOfRange(place, "factor", refill, `a whole number from 1 to ${MAX_UNITS}`);
      if (amount < span || amount > YEAR) {
        throw outOfRange(place, "capMs", amount, `a whole number of milliseconds from ${span} (baseMs) to ${YEAR}`);
      }
      return new Penalty(amount, span, refill);
    default:
      within(place, "capMs", amount, 1, YEAR, "");
      return new Penalty(amount, 0, 1);
  }
}

function bucket(Bucket: typeof TokenBucket, place: string, capacity: number, perMs: number, refill: number): TokenBucket {
  checked(place, "refill", refill, "a millisecond", 1);
  // Only if the numbers as they are written are too large: a stored level is in their units.
  if (perMs > 0 && capacity * perMs > MAX_UNITS) {
    const divisor = commonDivisor(refill, perMs);
    if (divisor > 1 && capacity <= Math.floor(MAX_UNITS / (perMs / divisor))) return new Bucket(capacity, perMs / divisor, refill / divisor);
  }
  checked(place, "capacity", capacity, "perMs", perMs);
  return new Bucket(capacity, perMs, refill);
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
