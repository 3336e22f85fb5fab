import { MAX_INSTANT } from "./core/arithmetic.js";
import type { Policy } from "./core/policy.js";
import type { Keys } from "./core/key.js";

/** The kinds of questions, by their numbers in `src/limit.rs`. From `SETTLE` on, they give back what may have denied a check. */
export const CHECK = 0;
export const PEEK = 1;
export const SETTLE = 2;
export const REFUND = 3;
export const BLOCK = 4;
export const RESET = 5;
export const GRANT = 6;

/** A settlement to what was charged, in place of a cost. */
export const WHAT_WAS_CHARGED = -1;

/** What a limit allows to be lent: the most units that one process holds, how long, and what it admits before it has heard of a key. */
export interface Lease {
  readonly slice: number;
  readonly lifetimeMs: number;
  readonly grace: number;
}

/** What a limiter or a gate asks. All questions have the same fields, which V8 reads faster. */
export interface Question {
  kind: 0 | 1 | 2 | 3 | 4 | 5 | 6;
  policy: Policy;
  /** The key that the request counts against, or that of each dimension, as the verdict shows it. */
  keys: string | Keys | undefined;
  /** For a settlement the actual cost, or `WHAT_WAS_CHARGED`, and for a grant the units. */
  cost: number;
  now: number;
  /** Whether the caller has given that time. Otherwise it is read right before a store is asked. */
  isTimed: boolean;
  token: string | undefined;
  /** How long a token is remembered, when a refund's cost was charged, or how long to block. */
  extra: number;
  /** When what is granted expires. */
  expires: number;
  /** The lease by which a check may be decided from a loan, if its limit has one. */
  lease: Lease | undefined;
  /** For the store: the key of the policy's last dimension, and those of the others in order. */
  key: string;
  others: readonly string[];
}

const NO_OTHERS: readonly string[] = [];

/** A clock's time, or the last instant if that is earlier. */
export function clamped(now: number): number {
  return Math.min(now, MAX_INSTANT);
}

/** Reads the time of a question, unless the caller has given it. */
export function timed(question: Question): void {
  if (!question.isTimed) question.now = clamped(Date.now());
}

/** A question of cost 1 without a token. */
export function ask(kind: Question["kind"], policy: Policy, now: number): Question {
  return {
    kind,
    policy,
    keys: undefined,
    cost: 1,
    now: clamped(now),
    isTimed: true,
    token: undefined,
    extra: 0,
    expires: 0,
    lease: undefined,
    key: "",
    others: NO_OTHERS,
  };
}
