import type { Capabilities } from "../core/capabilities.js";
import type { Decision } from "../core/decide.js";
import type { Keys } from "../verdict.js";
import type { RulesPolicy } from "./policy.js";

/** The terms on which a limit is lent: the most units that one process holds, and how long. */
export interface Lease {
  readonly slice: number;
  readonly lifetimeMs: number;
}

/** A request that a store has to decide on. */
export interface Check {
  readonly policy: RulesPolicy;
  /** The key of each dimension of the policy. */
  readonly keys: Keys;
  readonly cost: number;
  readonly now: number;
  /** Whether the application has given that time. */
  readonly isTimed: boolean;
  /** The token under which it is charged, and for how long a store remembers it. */
  readonly token: string | undefined;
  readonly ttlMs: number;
  /** The terms on which it may be decided from a loan. */
  readonly lease: Lease | undefined;
}

/** A correction of a charge to its actual cost, or to what was charged if the cost is undefined: then only its slots are given back. */
export interface Settlement {
  readonly policy: RulesPolicy;
  readonly keys: Keys;
  readonly token: string;
  readonly cost: number | undefined;
  readonly now: number;
}

/** What a gate asks for the decisions of a store: the store, or a limiter around it. Both methods reject with a `TidegateError`. */
export interface Asked {
  readonly capabilities: Capabilities;
  check(check: Check): Promise<Decision>;
  /** Decides if that needs no call, because of a loan or a denial. Otherwise nothing has happened. */
  known?(check: Check): Decision | undefined;
  settle(settlement: Settlement): Promise<Decision>;
}
