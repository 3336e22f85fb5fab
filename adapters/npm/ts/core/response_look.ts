import { ALLOWED, AT, BINDING, DENIED, FROM_FALLBACK, ORIGIN, STATUS, UNKNOWN, WAIT } from "../decision_numbers.js";
import type { Decision } from "./decide.js";
import { blocks, current, type Policy } from "./policy.js";
import { error, fields, INTEGER_MAX, retryAfter, seconds, type Sent, shown, statusAt } from "./response.js";

// Responses as an application wants them: see `response.ts` for those that all have.

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
export function sent(any: Policy, decision: Decision, { asProblem, draft6, retryAfterMs, paymentRequired }: Look): Sent {
  const policy = current(any, decision[AT]!);
  const headers = fields(policy, decision);
  if (isOfFallback(decision)) headers["x-tidegate-origin"] = "fallback";
  const [place, retry] = [draft6 ? shown(policy, decision) : -1, retryAfter(decision)];
  if (place >= 0) {
    const [limit, remaining, reset] = statusAt(decision, place);
    headers["ratelimit-limit"] = String(Math.min(limit, INTEGER_MAX));
    if (remaining !== UNKNOWN) headers["ratelimit-remaining"] = String(Math.min(remaining, INTEGER_MAX));
    if (reset !== UNKNOWN) headers["ratelimit-reset"] = String(Math.min(seconds(reset), retry ?? Infinity));
  }
  if (retryAfterMs && retry !== undefined) headers["retry-after-ms"] = String(Math.min(Math.max(decision[WAIT]!, 1), INTEGER_MAX));
  if (decision[STATUS] === ALLOWED) return { status: 0, headers, body: "" };
  headers["content-type"] = `application/${asProblem ? "problem+" : ""}json`;
  const status = paymentRequired && lacksCredits(policy, decision) ? 402 : 429;
  return { status, headers, body: JSON.stringify(asProblem ? problem(policy, decision, status) : error(policy, decision)) };
}

/** Whether the store has not decided. */
function isOfFallback(decision: Decision): boolean {
  return decision[ORIGIN] === FROM_FALLBACK;
}

/** Whether a grant would admit the request. Without the store, nobody knows. */
function lacksCredits({ quotas }: Policy, decision: Decision): boolean {
  return decision[STATUS] === DENIED && !isOfFallback(decision) && quotas[decision[BINDING]!]?.rule.code === "ba";
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
