import type { AskingOptions } from "./asking.js";
import { REQUESTS_ARE_APART } from "./calls.js";
import { invalid } from "./error.js";
import { Fields } from "./fields.js";
import { StoreBorrowing } from "./lending_store.js";
import type { Lease } from "./question.js";

/**
 * An isolate or a process leases units of a key, and decides on requests without a call as long as a lease or a denial holds. Without a
 * grace, no more than the limit is ever admitted. Leases are as large and as long as the key's requests and what is left of its limit
 * allow, within these bounds. Requests that find a lease spent wait once for the next one that is under way, except where requests are
 * served apart, as on Cloudflare. Up to two slices for each isolate may stay unused within a lifetime, and a denial may miss a reset
 * elsewhere for as long.
 *
 * Policies of one key by fixed windows, sliding windows and token buckets are leased. Checks of others, and those with a token or an
 * estimate, ask as they do without leases.
 */
export interface Leases {
  /** The most units that an isolate holds of a key. Default: 50. */
  slice?: number | undefined;
  /** At most a minute, the default. */
  lifetimeMs?: number | undefined;
  /**
   * The most units of a key that an isolate admits before the store has heard of the key, at most the slice and the limit. Default: 0, and the first
   * request of a key waits for the store. What is admitted so is told in the background within 100 ms, with that of other keys, and charged
   * also beyond the limit: `admitted <= limit + grace x isolates`. A bucket repays it. A key near its limit gets none, and no key gets any
   * while the store does not answer.
   */
  grace?: number | undefined;
}

/** The options of stores that lend. */
export interface LeaseOptions {
  /** Admits and denies requests from leases, which need no call of the store. See `Leases`. Default: false. */
  leases?: boolean | Leases | undefined;
  /**
   * Keeps work alive after the response, such as `(work) => context.waitUntil(work)`: the next lease of a busy key is asked for then, what
   * was admitted by grace is told, and leases of idle keys are returned. Leases need it on Cloudflare and in Vercel's edge runtime.
   * Elsewhere such work goes on by itself.
   */
  waitUntil?: ((work: Promise<unknown>) => void) | undefined;
}

/** What is lent, and how a store is asked for it. */
export interface Leasing extends Lease, Pick<AskingOptions, "borrowing"> {}

const RIGHT = "(work) => context.waitUntil(work)";

/** Reads the options. `known` is how work is kept alive if the option does not say so. */
export function lending(fields: Fields, deadlineMs: number, known?: (work: Promise<unknown>) => void): Leasing {
  const sizes = leases(fields.get("leases"));
  const given = known ?? (fields.call("waitUntil", RIGHT) as LeaseOptions["waitUntil"]);
  if (sizes.slice > 0 && !given && REQUESTS_ARE_APART) {
    throw invalid("waitUntil", `missing; leases need it on this runtime: write waitUntil: ${RIGHT}`);
  }
  const keepAlive = (work: Promise<unknown>) => {
    try {
      given?.(work);
    } catch {
      // Outside of a request, work goes on as long as the isolate does.
    }
  };
  // Where the host's way is known, it is Cloudflare's.
  const options = { ...sizes, deadlineMs, keepAlive, mayWait: !REQUESTS_ARE_APART && !known };
  return { ...sizes, borrowing: sizes.slice > 0 ? (store) => new StoreBorrowing(store, options) : undefined };
}

/** The slice is 0 without leases. */
function leases(value: unknown): Lease {
  const on = { slice: 50, lifetimeMs: 60_000, grace: 0 };
  if (value === undefined || value === false) return { ...on, slice: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "leases", ["slice", "lifetimeMs", "grace"]);
  const [slice, lifetimeMs] = [fields.whole("slice") ?? on.slice, fields.whole("lifetimeMs") ?? on.lifetimeMs];
  const grace = fields.whole("grace") ?? on.grace;
  if (lifetimeMs === 0 || lifetimeMs > on.lifetimeMs) {
    throw invalid("leases.lifetimeMs", `${lifetimeMs} ms is out of range; write 1 ms to ${on.lifetimeMs} ms`);
  }
  if (slice === 0) throw invalid("leases.slice", "0 lends nothing; write at least 1, or leave out leases");
  if (grace > slice) throw invalid("leases.grace", `${grace} is out of range; write 0 to the slice, ${slice}`);
  return { slice, lifetimeMs, grace };
}
