import { TidegateError } from "../error.js";
import type { Limiter } from "../limiter.js";
import type { Platform } from "../options.js";
import { PARTS, type Parts, type Policy, type Quota } from "../policy.js";
import type { Keys, Verdict } from "../verdict.js";

/** The options of a limiter that counts for a gate: those that the gate chooses. Spread them, as in `new Tidegate({ ...limit })`. */
export interface Limit {
  policy: Policy;
  platform: Platform;
  /** The gate decides what happens to a request when the store fails, by `on_failure` of its rule. */
  failMode: "closed";
  /** The gate tells of failures. */
  onError: () => void;
  /** The bounds of its loans, if the limit has a `lease`: the option `leases` of a store that lends. */
  leases?: { slice: number; lifetimeMs: number };
}

/** Makes the limiter of a policy on a store. */
export type Store = (limit: Limit) => Limiter;

/** A policy as the WebAssembly writes it: see `src/rules/policies.rs`. */
export type Written = [name: string, chargeDenied: boolean, groupAt: number, placeByKey: boolean, quotas: WrittenQuota[], lease: [slice: number, lifetimeMs: number] | null];
type WrittenQuota = [algorithm: number, amount: number, span: number, refill: number, name: string, by: string, scope: string];

/** A question about a request, as the WebAssembly writes it: see `src/rules/host.rs`. */
type Asked = [store: number, policy: number, written: Written | null, keys: Keys, cost: number, now: number, token: string | null, ttlMs?: number];

const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty"];
const STATUSES = ["allowed", "denied", "never_admissible"];
const ORIGINS = ["store", "deny_cache", "fallback", "near", "lease"];
const DIMENSIONS = ["one", "grouped", "any"];
const CLASSES = ["exact", "approximate", "per_location"];

/** What a store is asked about, if it does not take the policies of the rules. */
const ANY: Written = ["probe", false, -1, false, [[0, 1, 60_000, 0, "probe", "", "probe"]], null];

/** The limiters that count for a gate: one for each policy on each store. */
export class Stores {
  readonly #names: string[];
  readonly #makes: Store[];
  readonly #platform: Platform;
  readonly #policies: Written[] = [];
  readonly #limiters: Map<string, Limiter>[];

  constructor(makes: Record<string, Store>, platform: Platform) {
    this.#names = Object.keys(makes);
    this.#makes = Object.values(makes);
    this.#platform = platform;
    this.#limiters = this.#makes.map(() => new Map());
  }

  /** What a store supports, in the numbers of `src/rules/host.rs`. It should support the part of this policy that counts by its first key. */
  probe(store: number, [name, chargeDenied, groupAt, placeByKey, quotas]: Written): [numbers: Uint32Array, formula: string] {
    const own = quotas.filter(([, , , , , , scope]) => scope === quotas[0]![6]);
    const alone = own.length === quotas.length ? groupAt : -1;
    let can: Record<string, unknown>;
    try {
      can = this.#limiter(store, [name, chargeDenied, alone, placeByKey, own, null]).capabilities;
    } catch (thrown) {
      // The core says which rule needs what this store lacks.
      if (TidegateError.from(thrown).kind !== "unsupported") throw thrown;
      can = this.#make(store, ANY).capabilities;
    }
    const bits = (flags: boolean[]) => flags.reduce((bits, flag, place) => bits | (Number(flag) << place), 0);
    const algorithms = bits(ALGORITHMS.map((name) => (can["algorithms"] as string[]).includes(name)));
    const flags = bits([can["costs"], can["charge_denied"], can["idempotency"]] as boolean[]);
    const numbers = [algorithms, can["max_quotas"], DIMENSIONS.indexOf(can["dimensions"] as string), flags, can["round_trips"], CLASSES.indexOf(can["class"] as string)];
    return [Uint32Array.from(numbers as number[]), String(can["accuracy"]).split("<= admitted <= ").pop()!];
  }

  /** Makes the limiter of a policy, so that what is wrong with it is known before the first request. */
  prepare(store: number, policy: number, written: Written | null): Limiter {
    return this.#of(store, policy, written);
  }

  /** Decides on a request, in the numbers of `src/rules/host.rs`. */
  async check([store, policy, written, keys, cost, now, token, ttlMs = 0]: Asked): Promise<Float64Array> {
    const idempotency = token === null ? {} : { idempotency: { token, ttlMs } };
    const verdict = await this.#of(store, policy, written).limit(keys, { cost, now, ...idempotency });
    if (verdict.error) throw verdict.error;
    return numbers(verdict);
  }

  /** Settles a charge to its cost, or to what was charged if that is negative. */
  async settle([store, policy, written, keys, cost, now, token]: Asked): Promise<Float64Array> {
    const limiter = this.#of(store, policy, written);
    const charged = { keys, status: "allowed", charge: { token, cost: 1 } } as unknown as Verdict;
    return numbers(await (cost < 0 ? limiter.release(charged, { now }) : limiter.settle(charged, { cost, now })));
  }

  #of(store: number, policy: number, written: Written | null): Limiter {
    if (written) this.#policies[policy] = written;
    return this.#limiter(store, this.#policies[policy]!);
  }

  /** One limiter for equal policies: its connections and its deny cache live in it. */
  #limiter(store: number, written: Written): Limiter {
    const name = JSON.stringify(written);
    const limiters = this.#limiters[store]!;
    const limiter = limiters.get(name) ?? this.#make(store, written);
    limiters.set(name, limiter);
    return limiter;
  }

  #make(store: number, written: Written): Limiter {
    const limit: Limit = { policy: policyOf(written), platform: this.#platform, failMode: "closed", onError: () => undefined };
    const lease = written[5];
    return lease ? this.#borrowing(store, limit, lease) : this.#makes[store]!(limit);
  }

  /** A limiter that borrows. A store that does not know the option, or a function that does not pass it on, is an error. */
  #borrowing(store: number, limit: Limit, [slice, lifetimeMs]: [number, number]): Limiter {
    const refused = `limit "${limit.policy.name}": it has a lease, and the store "${this.#names[store]}" does not borrow; delete lease, or write a store that has the option "leases", as in (limit) => new Tidegate({ ...limit, waitUntil })`;
    let limiter: Limiter;
    try {
      limiter = this.#makes[store]!({ ...limit, leases: { slice, lifetimeMs } });
    } catch (cause) {
      if (TidegateError.from(cause).field !== "leases") throw cause;
      throw new TidegateError("unsupported", refused, "leases", { cause });
    }
    const accuracy = String((limiter.capabilities as Record<string, unknown>)["accuracy"]);
    if (!accuracy.includes(`limit - ${2 * slice} x locations`)) throw new TidegateError("unsupported", refused, "leases");
    return limiter;
  }
}

function numbers(verdict: Verdict): Float64Array {
  const { status, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas } = verdict;
  const counts = quotas.flatMap(({ limit, remaining, resetAfterMs }) => [limit, remaining ?? -1, resetAfterMs ?? -1]);
  return Float64Array.from([STATUSES.indexOf(status), binding, retryAfterMs ?? -1, delayMs, decidedAtMs, Math.max(ORIGINS.indexOf(origin), 0), Number(replayed), ...counts]);
}

/** The policy as the options of a limiter. */
function policyOf([name, chargeDenied, groupAt, placeByKey, quotas]: Written): Policy {
  const dimensions = [...new Map(quotas.map(([, , , , , by, scope]) => [scope, by])).values()];
  const parts: Parts = { scopes: quotas.map(([, , , , , , scope]) => scope).join(), groupAt, placeByKey };
  const group = dimensions[groupAt];
  const options = { name, chargeDenied, quotas: quotas.map(quotaOf), [PARTS]: parts };
  return group ? { ...options, groupBy: group } : options;
}

function quotaOf([algorithm, amount, span, refill, name, by]: WrittenQuota): Quota {
  const common = by ? { name, by } : { name };
  const [window, bucket] = [{ limit: amount, windowMs: span }, { capacity: amount, refill, perMs: span }];
  switch (algorithm) {
    case 0:
      return { ...common, fixedWindow: window };
    case 1:
      return { ...common, slidingWindow: window };
    case 2:
      return { ...common, slidingLog: window };
    case 3:
      return { ...common, tokenBucket: bucket };
    case 4:
      return { ...common, leakyBucket: bucket };
    case 5:
      return { ...common, concurrency: { limit: amount, lifetimeMs: span, returnsCost: refill === 1 } };
    case 7:
      return { ...common, block: { capMs: amount } };
    default:
      return { ...common, penalty: { capMs: amount, baseMs: span, factor: refill } };
  }
}
