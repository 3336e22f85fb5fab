import { type ErrorKind, invalid, TidegateError } from "./error.js";
import { choice, Fields } from "./fields.js";
import { type Identity, type Platform, PLATFORMS } from "./platform.js";
import { type Policy, policy } from "./policy.js";
import type { Verdict } from "./verdict.js";

export type { Identity, Platform } from "./platform.js";

/** A method of the limiter. */
export type Operation = "check" | "peek" | "settle" | "release" | "refund" | "reset" | "block" | "grant" | "identify";

/** A failure, as `onError` gets it. It contains neither tokens nor keys. */
export interface ErrorEvent {
  /** The method that failed. */
  operation: Operation;
  /** What kind of error it is. `unavailable` and `timeout` are failures of the store. */
  kind: ErrorKind;
  message: string;
  /** The name of the gate's rule, if it is known. */
  rule?: string;
  /** Whether the request was let through uncounted because of this failure. */
  failedOpen: boolean;
  /**
   * `down` if a store has stopped to answer, also one that another replaces. `up` if it answers again: then nothing has failed, and `kind`
   * is that of the outage.
   */
  health?: "down" | "up";
  /** The name of that store of a gate. */
  store?: string;
}

/** The options of every limiter. */
export interface Options {
  policy: Policy;
  /** The platform in front of the app. */
  platform: Platform;
  /**
   * What happens to a request when the store fails (`unavailable` or `timeout`): `open` admits it, `closed` rejects it. A missing variable or
   * binding is no failure of the store: each request is then a 503 also with `open`, and `assertReady` finds it before.
   */
  failMode: "open" | "closed";
  /** Identifies the sender of a request. If it returns undefined, the client's address counts. The deadline does not cover it. */
  identify?: ((request: Request) => Identity | undefined | Promise<Identity | undefined>) | undefined;
  /** What happens if `identify` throws: count the request by the client's `address`, or `reject` it. Default: `address`. */
  onIdentifyError?: "address" | "reject" | undefined;
  /**
   * Called for every failure, and when the store answers again, for your log or metrics. It is not awaited, and what it throws is ignored.
   * Without it, the console has a line when the store goes down and one when it is back, and of other failures at most one a second for
   * each kind.
   */
  onError?: ((event: ErrorEvent) => unknown) | undefined;
  /** Called for every verdict, for your log or metrics. It is not awaited, and what it throws is ignored. */
  onVerdict?: ((verdict: Verdict, request: Request | undefined) => unknown) | undefined;
  /** Denies a key that was denied before without asking the store, until its wait is over. Default: off. */
  denyCache?: boolean | { holdMs?: number | undefined; capacity?: number | undefined } | undefined;
  /** The longest that a decision may take, in milliseconds. */
  deadlineMs?: number | undefined;
  /** How many leading bits of an IPv6 address identify a client, 48 to 128. Default: 64. */
  ipv6Prefix?: number | undefined;
  /** On `spin`, read the address from `true-client-ip`. Only safe if every request comes through Akamai. */
  trustTrueClientIp?: boolean | undefined;
  /** The format of a denial's body. Default: `json`. */
  body?: "json" | "problem" | undefined;
  /**
   * Whether responses have `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset` of the IETF's draft 6, too, beside `RateLimit`
   * and `RateLimit-Policy` of draft 11. Default: false.
   */
  draft6Fields?: boolean | undefined;
  /** Whether denials have `retry-after-ms`, too, which the client libraries of OpenAI and Anthropic read first. Default: false. */
  retryAfterMs?: boolean | undefined;
  /** Whether a response tells by `x-tidegate-failed-open` that the request passed because the store failed. Default: true. */
  failedOpenHeader?: boolean | undefined;
}

/** The names of the options of every limiter. */
export const COMMON = [
  ...["policy", "platform", "failMode", "identify", "onIdentifyError", "onError", "onVerdict"],
  ...["denyCache", "deadlineMs", "ipv6Prefix", "trustTrueClientIp", "body", "draft6Fields", "retryAfterMs", "failedOpenHeader"],
];
/** The error of each check if what the store needs is missing: at import and in a build, it may be. */
export function missing(field: string, right: string): TidegateError {
  return new TidegateError("refused", `${field}: missing; ${right}; nothing was charged`, field);
}

/** An hour, as in `tidegate-redis`. */
const DEADLINE_MS_MAX = 3_600_000;

const MODES = `"open" to let requests through while the store is down, or "closed" to refuse them`;

/** Checks the options about a store that does not answer, and fills in the default. */
export function failures(fields: Fields, deadlineMs: number) {
  const failMode = fields.need("failMode", fields.read("failMode", choice(["open", "closed"])), MODES);
  return { failsOpen: failMode === "open", deadlineMs: deadline(fields.whole("deadlineMs") ?? deadlineMs) };
}

/** Checks the options of every limiter and fills in the defaults. */
export function common(fields: Fields, deadlineMs: number, platform?: Platform) {
  return {
    ...failures(fields, deadlineMs),
    ...policy(fields.need("policy", fields.get("policy"), "{ name, quotas }")),
    ...denyCache(fields.get("denyCache")),
    platform: fields.need("platform", fields.read("platform", choice(PLATFORMS)) ?? platform, PLATFORMS.join(" or ")),
    identify: fields.call("identify", "(request) => ({ subject, apiKey })") as Options["identify"],
    rejectsUnidentified: fields.read("onIdentifyError", choice(["address", "reject"])) === "reject",
    onError: fields.call("onError", "(event) => console.error(event)") as Options["onError"],
    onVerdict: fields.call("onVerdict", "(verdict) => console.log(verdict)") as Options["onVerdict"],
    ipv6Prefix: fields.whole("ipv6Prefix") ?? 64,
    trustTrueClientIp: fields.flag("trustTrueClientIp") ?? false,
    look: { asProblem: fields.read("body", choice(["json", "problem"])) === "problem", draft6: fields.flag("draft6Fields") ?? false, retryAfterMs: fields.flag("retryAfterMs") ?? false },
    failedOpenHeader: fields.flag("failedOpenHeader") ?? true,
  };
}

function deadline(ms: number): number {
  if (ms === 0) throw invalid("deadlineMs", "0 ms leaves no time for an answer; write at least 1 ms");
  if (ms > DEADLINE_MS_MAX) throw invalid("deadlineMs", `longer than any request waits; write at most ${DEADLINE_MS_MAX} ms`);
  return ms;
}

/** Off by default. If it is on, the defaults are those of core's `DenyCache`. */
function denyCache(value: unknown) {
  const on = { holdMs: 10_000, capacity: 1_024 };
  if (value === undefined || value === false) return { ...on, holdMs: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "denyCache", ["holdMs", "capacity"]);
  return { holdMs: fields.whole("holdMs") ?? on.holdMs, capacity: fields.whole("capacity") ?? on.capacity };
}
