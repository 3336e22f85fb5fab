import { ALLOWED, AT, BINDING, DENIED, EACH, QUOTAS, STATUS, UNKNOWN, WAIT } from "../decision_numbers.js";
import { later } from "./arithmetic.js";
import type { Decision } from "./decide.js";
import { blocks, current, type Policy } from "./policy.js";

/** What the client of a request is sent. A status of 0 stands for the app's own. */
export interface Sent {
  status: number;
  headers: Readonly<Record<string, string>>;
  body: string;
}

/** The largest integer of a structured field (RFC 9651). */
export const INTEGER_MAX = 999_999_999_999_999;

/** What the client of a decision is sent, unless the application wants another `Look`. */
export function plainSent(any: Policy, decision: Decision): Sent {
  const policy = current(any, decision[AT]!);
  const headers = fields(policy, decision);
  return decision[STATUS] === ALLOWED ? { status: 0, headers, body: "" } : response(429, error(policy, decision), headers);
}

/** What the client of a request is sent that was not decided on, because of an error of this kind. `tells` whether a field says so. */
export function undecided(kind: string, mayFailOpen: boolean, tells: boolean): Sent {
  // Only a store that has failed opens the gate.
  if (mayFailOpen && (kind === "unavailable" || kind === "timeout")) return { status: 0, headers: tells ? { "x-tidegate-failed-open": kind } : {}, body: "" };
  const [status, error] = ANSWERS[kind] ?? [];
  return status ? response(status, { error }) : unavailable(kind);
}

/** The response to a request while the store is down. */
export function unavailable(kind: string): Sent {
  return response(503, { error: "limiter_unavailable", kind });
}

export function response(status: number, body: object, fields: Record<string, string> = {}): Sent {
  return { status, headers: { ...fields, "content-type": "application/json" }, body: JSON.stringify(body) };
}

const ANSWERS: Readonly<Record<string, readonly [status: number, error: string]>> = {
  invalid: [400, "invalid_request"],
  token_reused: [409, "token_reused"],
  misconfigured: [500, "limiter_misconfigured"],
};

/** The fields of a response. */
export function fields(policy: Policy, decision: Decision): Record<string, string> {
  const headers: Record<string, string> = {};
  const [retry, place] = [retryAfter(decision), shown(policy, decision)];
  let [policies, limits] = ["", ""];
  policy.quotas.forEach(({ name, rule }, nth) => {
    if (blocks(rule)) return;
    const [limit, remaining, reset] = statusAt(decision, nth);
    if (nth === place) {
      headers["x-ratelimit-limit"] = String(limit);
      if (remaining !== UNKNOWN) headers["x-ratelimit-remaining"] = String(remaining);
      if (reset !== UNKNOWN) headers["x-ratelimit-reset"] = String(Math.ceil(later(decision[AT]!, reset) / 1_000));
    }
    policies += `${policies && ", "}"${name}";q=${Math.min(limit, INTEGER_MAX)}${rule.counted ? `;qu="${rule.counted}"` : rule.window > 0 ? `;w=${seconds(rule.window)}` : ""}`;
    if (remaining === UNKNOWN) return;
    const wait = reset === UNKNOWN ? undefined : seconds(reset);
    // Of a denial, only the quota that denies tells when to come back.
    const told = wait !== undefined && retry !== undefined && wait > retry ? (nth === decision[BINDING] ? retry : undefined) : wait;
    limits += `${limits && ", "}"${name}";r=${Math.min(remaining, INTEGER_MAX)}${told === undefined ? "" : `;t=${told}`}`;
  });
  if (policies) headers["ratelimit-policy"] = policies;
  if (limits) headers["ratelimit"] = limits;
  if (retry !== undefined) headers["retry-after"] = String(retry);
  return headers;
}

/** The whole seconds after which to retry. Undefined if nobody knows them. */
export function retryAfter(decision: Decision): number | undefined {
  return decision[WAIT] === UNKNOWN ? undefined : Math.max(seconds(decision[WAIT]!), 1);
}

/** The quota that the fields of one number are about: the one that decided, or else the first with the fewest requests remaining. */
export function shown({ quotas }: Policy, decision: Decision): number {
  const counts = (nth: number) => !blocks(quotas[nth]!.rule);
  if (counts(decision[BINDING]!)) return decision[BINDING]!;
  let place = -1;
  for (let nth = 0; nth < quotas.length; nth++) {
    if (counts(nth) && (place < 0 || statusAt(decision, nth)[1] < statusAt(decision, place)[1])) place = nth;
  }
  return place;
}

/** What a decision tells of a quota. */
export function statusAt(decision: Decision, nth: number): [limit: number, remaining: number, reset: number] {
  const at = QUOTAS + EACH * nth;
  return [decision[at]!, decision[at + 1]!, decision[at + 2]!];
}

/** Whole seconds, rounded up. */
export function seconds(ms: number): number {
  return Math.min(Math.ceil(ms / 1_000), INTEGER_MAX);
}

/** The body of a denial. */
export function error(policy: Policy, decision: Decision) {
  const wait = decision[WAIT]!;
  return {
    error: decision[STATUS] === DENIED ? "rate_limited" : "never_admissible",
    policy: policy.name,
    quota: policy.quotas[decision[BINDING]!]?.name,
    retry_after_ms: wait === UNKNOWN ? undefined : wait,
  };
}
