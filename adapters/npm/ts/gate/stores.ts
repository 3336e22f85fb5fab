import { type Capabilities, EXACT } from "../core/capabilities.js";
import type { Decision } from "../core/decide.js";
import { TidegateError } from "../error.js";
import type { Limiter } from "../limiter.js";
import type { Platform } from "../options.js";
import { type Policy, written } from "../policy.js";
import { NUMBERS, type Verdict } from "../verdict.js";
import type { Asked, Check, Lease, Settlement } from "./asked.js";
import { RulesPolicy } from "./policy.js";

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

/** A store of the application: a limiter for each policy that counts in it. */
export class OwnStore implements Asked {
  readonly name: string;
  /** Those of its limiters. Until one is made, nobody knows. */
  capabilities: Capabilities = EXACT;
  readonly #make: Store;
  readonly #platform: Platform;
  readonly #limiters = new Map<string, Limiter>();

  constructor(name: string, make: Store, platform: Platform) {
    this.name = name;
    this.#make = make;
    this.#platform = platform;
  }

  /** Finds out what the store supports. It should support the part of this policy that counts by its first key. */
  probe({ parts, dimensions }: RulesPolicy): void {
    const quotas = parts.quotas.slice(0, dimensions[0]!.end);
    const scopes = parts.scopes!.split(",").slice(0, quotas.length).join();
    const groupAt = dimensions.length === 1 ? parts.groupAt : -1;
    try {
      this.capabilities = this.limiter(new RulesPolicy({ ...parts, quotas, scopes, groupAt }), undefined).capabilities;
    } catch (thrown) {
      // The gate says which rule needs what this store lacks.
      if (TidegateError.from(thrown).kind !== "unsupported") throw thrown;
      const any = { algorithm: 0, place: "", amount: 1, span: 60_000, refill: 0, name: undefined, by: undefined };
      this.capabilities = this.#made(RulesPolicy.ofLimit("probe", [any], false, undefined), undefined).capabilities;
    }
  }

  /** The limiter of a policy: one for equal policies, because its connections live in it. */
  limiter(policy: RulesPolicy, lease: Lease | undefined): Limiter {
    const name = lease ? `${lease.slice} ${lease.lifetimeMs} ${policy.text}` : policy.text;
    let limiter = this.#limiters.get(name);
    if (!limiter) this.#limiters.set(name, (limiter = this.#made(policy, lease)));
    return limiter;
  }

  async check({ policy, keys, cost, now, token, ttlMs, lease }: Check): Promise<Decision> {
    const idempotency = token === undefined ? {} : { idempotency: { token, ttlMs } };
    return decisionOf(() => this.limiter(policy, lease).limit(keys, { cost, now, ...idempotency }));
  }

  async settle({ policy, keys, token, cost, now }: Settlement): Promise<Decision> {
    const charged = { keys, status: "allowed", charge: { token, cost: 1 } } as unknown as Verdict;
    return decisionOf(() => {
      const limiter = this.limiter(policy, undefined);
      return cost === undefined ? limiter.release(charged, { now }) : limiter.settle(charged, { cost, now });
    });
  }

  #made(policy: RulesPolicy, lease: Lease | undefined): Limiter {
    const limit: Limit = { policy: written(policy.parts), platform: this.#platform, failMode: "closed", onError: () => undefined };
    return lease ? this.#borrowing(limit, lease) : this.#make(limit);
  }

  /** A limiter that borrows. A store that does not know the option, or a function that does not pass it on, is an error. */
  #borrowing(limit: Limit, { slice, lifetimeMs }: Lease): Limiter {
    const refused = `limit "${limit.policy.name}": it has a lease, and the store "${this.name}" does not borrow; delete lease, or write a store that has the option "leases", as in (limit) => new Tidegate({ ...limit, waitUntil })`;
    let limiter: Limiter;
    try {
      limiter = this.#make({ ...limit, leases: { slice, lifetimeMs } });
    } catch (cause) {
      if (TidegateError.from(cause).field !== "leases") throw cause;
      throw new TidegateError("unsupported", refused, "leases", { cause });
    }
    if (!limiter.capabilities.accuracy.includes(`limit - ${2 * slice} x locations`)) throw new TidegateError("unsupported", refused, "leases");
    return limiter;
  }
}

/** The decision of a limiter, which the application may have made. */
async function decisionOf(decide: () => Promise<Verdict>): Promise<Decision> {
  try {
    const verdict = await decide();
    if (verdict.error) throw verdict.error;
    return verdict[NUMBERS];
  } catch (thrown) {
    throw TidegateError.from(thrown);
  }
}
