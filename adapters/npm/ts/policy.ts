import type { ReadyPolicy, ReadyQuota } from "./core/policy.js";
import { invalid } from "./error.js";
import { Fields } from "./fields.js";
import { type LoadedPolicy, type LoadedQuota, namesIn, type QuotaKind, READY, readPolicy, readyOf } from "./loaded_policy.js";
import { UNIT_NAMES, unitMs } from "./span.js";

/** At most `limit` units in a window. */
export interface Window {
  limit: number;
  windowMs: number;
}

/** At most `capacity` units at once, of which `refill` come back every `perMs`. */
export interface Bucket {
  capacity: number;
  refill: number;
  perMs: number;
}

/** The numbers of each algorithm. */
interface Algorithms {
  fixedWindow: Window;
  slidingWindow: Window;
  slidingLog: Window;
  tokenBucket: Bucket;
  leakyBucket: Bucket;
  /** The most requests in flight. Each holds a slot until it is released, or its lifetime is over. */
  concurrency: { limit: number; lifetimeMs: number; returnsCost?: boolean | undefined };
  /** Blocks a key that another quota has denied: first for the base, then `factor` times longer each time, up to the cap. */
  penalty: { baseMs: number; factor: number; capMs: number };
  /** Counts nothing: a place for the blocks that `block` sets, of at most `capMs`. A penalty takes them, too. */
  block: { capMs: number };
}

/** One algorithm with its numbers, as `{ fixedWindow: { limit: 10, windowMs: 1000 } }`. */
export type Algorithm = {
  [Name in keyof Algorithms]: Pick<Algorithms, Name> & { [Other in Exclude<keyof Algorithms, Name>]?: never };
}[keyof Algorithms];

/**
 * A limit, as a text or as an algorithm with its numbers.
 *
 * `"10 / 10 s"` admits at most 10 in any 10 seconds: it is a sliding log. Beyond a limit of 100, such a text is a sliding window of two
 * counters, which may admit almost twice the limit in one window. `"100 burst, 10 / s"` is a token bucket that holds 100 and gets 10
 * back every second. The units of time are ms, s, min, h and d, also as words: `"10 per minute"` is `"10 / min"`.
 *
 * `name` is what response fields show, and `by` the dimension by whose key the quota counts. Without `by`, it counts by the
 * request's sender.
 */
export type Quota = string | (Algorithm & { name?: string | undefined; by?: string | undefined }) | LoadedQuota<QuotaKind>;

/** One to eight quotas that are decided in one step. If one denies a request, none is charged. */
export interface Policy extends Omit<LoadedPolicy, "quotas"> {
  quotas: readonly Quota[];
}

/**
 * Marks a policy of the gate. It is what no application writes: quotas of several limits, each with its limit's own counts, and where a
 * store keeps them.
 */
const PARTS = Symbol.for("@tidegate/edge/parts");

const WINDOW = ["limit", "windowMs"] as const;
const BUCKET = ["capacity", "perMs", "refill"] as const;
const RETURNS_COST = "returnsCost";
/** The numbers of each algorithm: the amount, the span and one more, as `ReadyQuota` has them. */
const NUMBERS = {
  fixedWindow: WINDOW,
  slidingWindow: WINDOW,
  slidingLog: WINDOW,
  tokenBucket: BUCKET,
  leakyBucket: BUCKET,
  concurrency: ["limit", "lifetimeMs", RETURNS_COST],
  penalty: ["capMs", "baseMs", "factor"],
  block: ["capMs"],
} as const;
const ALGORITHMS = /* @__PURE__ */ Object.keys(NUMBERS) as (keyof typeof NUMBERS)[];
/** The sliding log and the concurrency limit, whose states are longer, the more requests they count. */
const GROWING = [2, 5];
/** The largest limit of such an algorithm whose states are short. A text up to it is counted by a log. */
const LOG_MAX = 100;
const TEXT = /^\s*(?:(\d+)\s*burst\s*,\s*)?(\d+)\s*(?:\/|per\b)\s*(\d+)?\s*([a-z]+)\s*$/;
const EXAMPLE = `"10 / 10 s" or { tokenBucket: { capacity: 20, refill: 10, perMs: 1000 } }`;

/** Reads a policy. Whether its numbers are right is for `core/policy.ts`. */
export function policy(value: unknown): ReadyPolicy & { statesAreLong: boolean } {
  const ready = (Object(value) as { [PARTS]?: ReadyPolicy })[PARTS] ?? readPolicy(value, quota, EXAMPLE);
  return { ...ready, statesAreLong: ready.quotas.some(({ algorithm, amount }) => amount > LOG_MAX && GROWING.includes(algorithm)) };
}

/** A policy of the gate, as the option of a limiter. `policy` reads the same of it. */
export function written(parts: ReadyPolicy): Policy {
  const quotas = parts.quotas.map((ready) => {
    if (ready.part) return { [READY]: ready, name: ready.name, by: ready.by };
    const { algorithm, amount, span, refill, name, by } = ready;
    const algorithmName = ALGORITHMS[algorithm]!;
    const numbers = NUMBERS[algorithmName].map((field, nth) => [field, field === RETURNS_COST ? refill === 1 : [amount, span, refill][nth]]);
    return { [algorithmName]: Object.fromEntries(numbers), name, by } as unknown as Quota;
  });
  return { name: parts.name, quotas, chargeDenied: parts.chargeDenied, [PARTS]: parts } as Policy;
}

function quota(value: unknown, path: string): ReadyQuota {
  if (typeof value === "string") return parsed(value, path);
  const ready = readyOf(value);
  const fields = new Fields(value, path, ["name", "by", ...(ready ? [] : ALGORITHMS)]);
  const { name, by } = namesIn(fields);
  if (ready) return { ...ready, name, by };
  const [algorithm, other] = ALGORITHMS.filter((name) => fields.get(name) !== undefined);
  if (!algorithm) throw invalid(path, `no algorithm; write ${EXAMPLE}`);
  if (other) throw invalid(fields.place(other), `a quota has one algorithm, and ${algorithm} is one; write two quotas`);
  const numbers = new Fields(fields.get(algorithm), fields.place(algorithm), NUMBERS[algorithm]);
  const [amount, span, refill]: readonly string[] = NUMBERS[algorithm];
  const number = (name: string) => numbers.need(name, numbers.whole(name), "a whole number");
  return {
    algorithm: ALGORITHMS.indexOf(algorithm),
    place: `${algorithm}.`,
    amount: number(amount!),
    span: span ? number(span) : 0,
    refill: refill === RETURNS_COST ? Number(numbers.flag(refill) ?? false) : refill ? number(refill) : 0,
    name,
    by,
  };
}

function parsed(text: string, path: string): ReadyQuota {
  const [, burst, amount, count, unit = ""] = TEXT.exec(text) ?? [];
  const ms = unitMs(unit);
  if (!ms) throw invalid(path, `not a quota; write "10 / 10 s" or "100 burst, 10 / s", in ${UNIT_NAMES}`);
  const number = (digits: string) => {
    const value = Number(digits);
    if (Number.isSafeInteger(value)) return value;
    throw invalid(path, `${digits} is too large; write at most ${Number.MAX_SAFE_INTEGER}`);
  };
  const span = number(String(number(count ?? "1") * ms));
  const units = number(amount!);
  const algorithm = burst ? "tokenBucket" : units <= LOG_MAX ? "slidingLog" : "slidingWindow";
  const [most, refill] = burst ? [number(burst), units] : [units, 0];
  return { algorithm: ALGORITHMS.indexOf(algorithm), place: "", amount: most, span, refill, name: undefined, by: undefined };
}
