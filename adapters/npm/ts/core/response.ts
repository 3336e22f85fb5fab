import { ALLOWED, AT, BINDING, DENIED, EACH, ORIGIN, ORIGINS, QUOTAS, STATUS, UNKNOWN, WAIT } from "../decision_numbers.js";
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
const INTEGER_MAX = 999_999_999_999_999;

/** How a response looks. */
export interface Look {
  /** Whether the body of a denial is a problem of RFC 9457. */
  readonly asProblem: boolean;
  /** Whether it has the fields of draft 6, too. */
  readonly draft6: boolean;
  /** Whether a denial has its wait in milliseconds, too. */
  readonly retryAfterMs: boolean;
  /** Whether a denial for want of credits is a 402. */
  readonly paymentRequired?: boolean | undefined;
}

/** What the client of a decision is sent. */
export function sent(any: Policy, decision: Decision, look: Look): Sent {
  const policy = current(any, decision[AT]!);
  const [headers, { asProblem }] = [fields(policy, decision, look), look];
  if (decision[STATUS] === ALLOWED) return { status: 0, headers, body: "" };
  headers["content-type"] = `application/${asProblem ? "problem+" : ""}json`;
  const status = look.paymentRequired && lacksCredits(policy, decision) ? 402 : 429;
  return { status, headers, body: JSON.stringify(asProblem ? problem(policy, decision, status) : error(policy, decision)) };
}

/** Whether a grant would admit the request. Without the store, nobody knows. */
function lacksCredits({ quotas }: Policy, decision: Decision): boolean {
  return decision[STATUS] === DENIED && !isOfFallback(decision) && quotas[decision[BINDING]!]?.rule.code === "ba";
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

function fields(policy: Policy, decision: Decision, { draft6, retryAfterMs }: Look): Record<string, string> {
  const { quotas } = policy;
  const headers: Record<string, string> = {};
  const retry = decision[WAIT] === UNKNOWN ? undefined : Math.max(seconds(decision[WAIT]!), 1);
  const place = shown(policy, decision);
  if (place >= 0) {
    const [limit, remaining, reset] = statusAt(decision, place);
    headers["x-ratelimit-limit"] = String(limit);
    if (remaining !== UNKNOWN) headers["x-ratelimit-remaining"] = String(remaining);
    if (reset !== UNKNOWN) headers["x-ratelimit-reset"] = String(Math.ceil(later(decision[AT]!, reset) / 1_000));
  }
  let [policies, limits] = ["", ""];
  for (let nth = 0; nth < quotas.length; nth++) {
    const { name, rule } = quotas[nth]!;
    if (blocks(rule)) continue;
    const [limit, remaining, reset] = statusAt(decision, nth);
    policies += `${policies && ", "}"${name}";q=${Math.min(limit, INTEGER_MAX)}${rule.code === "cc" ? ';qu="concurrent-requests"' : rule.window > 0 ? `;w=${seconds(rule.window)}` : ""}`;
    if (remaining === UNKNOWN) continue;
    const wait = reset === UNKNOWN ? undefined : seconds(reset);
    // Of a denial, only the quota that denies tells when to come back.
    const told = wait !== undefined && retry !== undefined && wait > retry ? (nth === decision[BINDING] ? retry : undefined) : wait;
    limits += `${limits && ", "}"${name}";r=${Math.min(remaining, INTEGER_MAX)}${told === undefined ? "" : `;t=${told}`}`;
  }
  if (policies) headers["ratelimit-policy"] = policies;
  if (limits) headers["ratelimit"] = limits;
  if (draft6 && place >= 0) {
    const [limit, remaining, reset] = statusAt(decision, place);
    headers["ratelimit-limit"] = String(Math.min(limit, INTEGER_MAX));
    if (remaining !== UNKNOWN) headers["ratelimit-remaining"] = String(Math.min(remaining, INTEGER_MAX));
    if (reset !== UNKNOWN) headers["ratelimit-reset"] = String(Math.min(seconds(reset), retry ?? Infinity));
  }
  if (retry !== undefined) {
    headers["retry-after"] = String(retry);
    if (retryAfterMs) headers["retry-after-ms"] = String(Math.min(Math.max(decision[WAIT]!, 1), INTEGER_MAX));
  }
  if (isOfFallback(decision)) headers["x-tidegate-origin"] = "fallback";
  return headers;
}

/** The quota that the fields of one number are about: the one that decided, or else the first with the fewest requests remaining. */
function shown({ quotas }: Policy, decision: Decision): number {
  const counts = (nth: number) => !blocks(quotas[nth]!.rule);
  if (counts(decision[BINDING]!)) return decision[BINDING]!;
  let place = -1;
  for (let nth = 0; nth < quotas.length; nth++) {
    if (counts(nth) && (place < 0 || statusAt(decision, nth)[1] < statusAt(decision, place)[1])) place = nth;
  }
  return place;
}

function statusAt(decision: Decision, nth: number): [limit: number, remaining: number, reset: number] {
  const at = QUOTAS + EACH * nth;
  return [decision[at]!, decision[at + 1]!, decision[at + 2]!];
}

function seconds(ms: number): number {
  return Math.min(Math.ceil(ms / 1_000), INTEGER_MAX);
}

function error(policy: Policy, decision: Decision) {
  const wait = decision[WAIT]!;
  return {
    error: decision[STATUS] === DENIED ? "rate_limited" : "never_admissible",
    policy: policy.name,
    quota: policy.quotas[decision[BINDING]!]?.name,
    retry_after_ms: wait === UNKNOWN ? undefined : wait,
  };
}

function isOfFallback(decision: Decision): boolean {
  return ORIGINS[decision[ORIGIN]!] === "fallback";
}

/** A problem of a type of draft 11, section 5. */
function problem({ quotas }: Policy, decision: Decision, status: number) {
  const binding = quotas[decision[BINDING]!];
  const isExceeded = (nth: number) => nth === decision[BINDING] || statusAt(decision, nth)[1] === 0;
  const [type, title] =
    binding && blocks(binding.rule)
      ? ["abnormal-usage-detected", "Request not satisfied due to detection of abnormal request pattern"]
      : isOfFallback(decision)
        ? ["temporary-reduced-capacity", "Request cannot be satisfied due to temporary server capacity constraints"]
        : ["quota-exceeded", "Request cannot be satisfied as assigned quota has been exceeded"];
  return {
    type: `https://iana.org/assignments/http-problem-types#${type}`,
    title,
    status,
    "violated-policies": quotas.map(({ name }) => name).filter((_, nth) => isExceeded(nth)),
  };
}
