import { checkedName, type ReadyPolicy, type ReadyQuota } from "./core/policy.js";
import { invalid } from "./error.js";
import { Fields, shown } from "./fields.js";

/** Marks a quota that is read already. The application may have loaded this module twice. */
export const READY = Symbol.for("@tidegate/edge/quota");

declare const KIND: unique symbol;

/** The kinds of quotas that only decide, so that a `RateLimiter` can count by them. */
export type DecidingKind = "fixed_window" | "sliding_window" | "sliding_log" | "token_bucket" | "leaky_bucket" | "penalty" | "calendar_window";

/**
 * The kinds of quotas that functions make. What `Tidegate` does beside deciding, others need: it releases, blocks and grants. A binding counts its
 * window itself.
 */
export type QuotaKind = DecidingKind | "concurrency" | "block" | "balance" | "binding_window";

/**
 * A quota that a function has made, such as `slidingWindow(10, "10 s")`, `calendarWindow` of `@tidegate/edge/calendar`, or `balance` of
 * `@tidegate/edge/credits`.
 */
export interface LoadedQuota<Kind extends QuotaKind = DecidingKind> {
  /** Only this package reads it. */
  readonly [READY]: object;
  /** Only the compiler reads it. */
  readonly [KIND]?: Kind | undefined;
  readonly name?: string | undefined;
  readonly by?: string | undefined;
}

/** One to eight quotas that functions have made, and that are decided in one step. If one denies a request, none is charged. */
export interface LoadedPolicy<Kind extends QuotaKind = DecidingKind> {
  /** It is part of each key at the store, and the name that response fields show. */
  name: string;
  quotas: readonly LoadedQuota<Kind>[];
  /** Whether denied requests are charged, too, so that a client which keeps retrying stays denied. Default: false. */
  chargeDenied?: boolean | undefined;
  /** The dimension whose key selects where the others are counted, for stores that keep each policy in one place. */
  groupBy?: string | undefined;
}

/** What a name may be. */
export const NAME = "a text of 1 to 32 of the characters a-z A-Z 0-9 - _ .";
export const EXAMPLE = 'slidingWindow(10, "10 s")';

/** Reads a policy whose quotas this function reads. Whether its numbers are right is for `core/policy.ts`. */
export function readPolicy(value: unknown, quotaAt: (value: unknown, path: string) => ReadyQuota, example: string): ReadyPolicy {
  const fields = new Fields(value, "policy", ["name", "quotas", "chargeDenied", "groupBy"]);
  const quotas = fields.need("quotas", fields.get("quotas"), `[${example}]`);
  if (!Array.isArray(quotas)) throw invalid("policy.quotas", `not an array; write [${example}]`);
  return {
    name: fields.need("name", fields.text("name", NAME), NAME),
    quotas: quotas.map((value, place) => quotaAt(value, `policy.quotas[${place}]`)),
    chargeDenied: fields.flag("chargeDenied") ?? false,
    groupBy: fields.text("groupBy", NAME),
    scopes: undefined,
    groupAt: -1,
    placeByKey: false,
  };
}

/** What a function has made of a quota. Undefined if none has made it. */
export function readyOf(value: unknown): ReadyQuota | undefined {
  return (Object(value) as Partial<LoadedQuota>)[READY] as ReadyQuota | undefined;
}

/** The name and the dimension of a quota. Those of a rules file are checked where its policies are made: it has lists of names, too. */
export function namesIn(fields: Fields): { name: string | undefined; by: string | undefined } {
  const named = (field: string) => fields.read(field, () => checkedName(fields.place(field), fields.text(field, NAME)!));
  return { name: named("name"), by: named("by") };
}

/** Reads a quota that a function has made. */
export function loadedQuota(value: unknown, path: string): ReadyQuota {
  const ready = readyOf(value);
  if (!ready) throw invalid(path, `${shown(value)} is not made by a function; write ${EXAMPLE}, or take Tidegate, which reads texts and objects`);
  return { ...ready, ...namesIn(new Fields(value, path, ["name", "by"])) };
}
