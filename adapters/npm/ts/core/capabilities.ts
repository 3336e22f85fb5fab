import { BLOCK, CHECK, type Lease, PEEK, type Question, REFUND, RESET, SETTLE } from "../question.js";
import type { Rule } from "./algorithms/algorithm.js";
import { blocks, type Policy } from "./policy.js";
import { checkFor, checkNumbers } from "./valid_question.js";

/** What a store supports, and how exact it is. */
export type Capabilities = {
  readonly class: "exact" | "approximate" | "per_location";
  /** The most that it admits: `limit`, `limit + grace x locations`, or `limit x locations`. */
  readonly ceiling: string;
  /** The units that each location may hold unspent, so that others are denied early. */
  readonly held: number;
  /** The units that each location admits of a key before it has heard of it from the store, also beyond the limit. */
  readonly grace: number;
  /** Both bounds, for people. */
  readonly accuracy: string;
  readonly algorithms: readonly string[];
  readonly max_quotas: number;
  readonly dimensions: "one" | "grouped" | "any";
  readonly costs: boolean;
  readonly charge_denied: boolean;
  readonly peek: boolean;
  readonly refund: boolean;
  readonly reset: boolean;
  readonly block: boolean;
  /** Whether a policy may have a balance. */
  readonly grant: boolean;
  readonly idempotency: boolean;
  readonly round_trips: number;
};

/** The algorithms that count. */
export const COUNTING = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "calendar_window"];

/** Those of a store that decides each request in one step. */
export const EXACT: Capabilities = {
  class: "exact",
  ceiling: "limit",
  held: 0,
  grace: 0,
  accuracy: "exact: admitted = limit",
  // Without `...`, so that bundlers leave it out where it is not used.
  algorithms: ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty", "calendar_window"],
  max_quotas: 8,
  dimensions: "any",
  costs: true,
  charge_denied: true,
  peek: true,
  refund: true,
  reset: true,
  block: true,
  grant: true,
  idempotency: true,
  round_trips: 1,
};

/** Those of a store in memory, which is asked without a call. */
export const local = (): Capabilities => ({ ...EXACT, round_trips: 0 });

/** Those of a platform's own limiter, which counts one fixed window at each location. */
export const NATIVE: Capabilities = {
  class: "per_location",
  ceiling: "limit x locations",
  held: 0,
  grace: 0,
  accuracy: "per location: limit <= admitted <= limit x locations",
  algorithms: ["fixed_window"],
  max_quotas: 1,
  dimensions: "one",
  costs: false,
  charge_denied: false,
  peek: false,
  refund: false,
  reset: false,
  block: false,
  grant: false,
  idempotency: false,
  round_trips: 1,
};

/** Those of a limiter that borrows at most `slice` units from such a store: loans may be unused, and a refund would also give back what is lent. */
export function lends(store: Capabilities, { slice, lifetimeMs, grace }: Lease): Capabilities {
  if (slice === 0) return store;
  const [held, ceiling] = [2 * slice, grace > 0 ? `limit + ${grace} x locations` : "limit"];
  const accuracy = `approximate: limit - ${held} x locations (in the first ${lifetimeMs} ms) <= admitted <= ${ceiling}`;
  return { ...store, class: "approximate", ceiling, held, grace, accuracy, refund: false };
}

/** Throws if a store cannot count by a policy. */
export function supportsPolicy(can: Capabilities, policy: Policy): void {
  const { quotas, balance, holdsSlots } = policy;
  if (quotas.length > can.max_quotas) throw tooMany(can.max_quotas, quotas.length);
  balance?.needs(can);
  const other = quotas.find(({ rule }) => rule !== balance && !can.algorithms.includes(blocks(rule) ? "penalty" : rule.name));
  if (other) throw unsupported("policy: ", `${other.rule.name} (only ${can.algorithms.join(", ")})${instead(can, other.rule)}`);
  chargesDenials(can.charge_denied, policy);
  if (holdsSlots && !can.idempotency) throw unsupported("policy: ", "a concurrency limit, whose slots have tokens");
  supportsDimensions(can, policy);
}

/** The error of a store that cannot count by so many quotas. */
export function tooMany(most: number, count: number): unknown {
  return unsupported("policy: ", `a policy of ${count} quotas (${most} at most)`);
}

/** Throws if a policy charges denied requests, unless its store can. */
export function chargesDenials(able: boolean, { chargeDenied }: Pick<Policy, "chargeDenied">): void {
  if (chargeDenied && !able) throw unsupported("policy: ", "chargeDenied");
}

/** Throws if a store cannot count a policy's dimensions together. */
export function supportsDimensions(can: Capabilities, { dimensions, group, placeByKey }: Policy): void {
  if (dimensions.length === 1 || can.dimensions === "any") return;
  if (can.dimensions === "one") throw unsupported("policy: ", "several dimensions in one policy");
  if (!group && !placeByKey) throw unsupported("policy: ", "several dimensions without a group; write groupBy");
}

/** Throws if a store cannot answer a question, or no store can. */
export function supports(can: Capabilities, policy: Policy, question: Question): void {
  const { kind, cost, token } = question;
  checkNumbers(question);
  const isChange = kind !== CHECK && kind !== PEEK;
  if (kind === PEEK) need(can.peek, "peek");
  if (kind === SETTLE) need(can.idempotency, "settle");
  if (kind === REFUND) need(can.refund, "refund");
  if (kind === RESET) need(can.reset, "reset");
  if (kind === BLOCK) need(can.block, "block; block keys in one that does, such as Redis or Durable Objects, or refuse them before the check");
  if (!isChange) costs(can.costs, cost);
  if (!isChange && token !== undefined) need(can.idempotency, "an idempotency token");
  checkFor(policy, question);
}

/** Throws if a request costs other than 1, unless its store can charge that. */
export function costs(able: boolean, cost: number): void {
  if (cost !== 1) need(able, "a cost other than 1");
}

/** What to write for a log, which a text such as `"10 / 10 s"` means, in a store of counters. */
function instead({ algorithms }: Capabilities, { name, amount, unit }: Rule): string {
  if (name !== "sliding_log" || !algorithms.includes("sliding_window")) return "";
  return `; write { slidingWindow: { limit: ${amount}, windowMs: ${unit} } }, which estimates from two counters`;
}

export function need(able: boolean, what: string): void {
  if (!able) throw unsupported("", what);
}

function unsupported(place: string, what: string): unknown {
  return ["unsupported", `${place}this store does not support ${what}`];
}
