import type { Decision } from "./core/decide.js";
import type { Sent } from "./core/sent.js";
import type { TidegateError } from "./error.js";
import { AT, BINDING, DELAY, EACH, ORIGIN, ORIGINS, QUOTAS, REPLAY, STATUS, STATUSES, UNKNOWN, WAIT } from "./numbers.js";
import { onto } from "./onto.js";

/** One quota's count. A number that the store does not report is null. */
export interface QuotaStatus {
  name: string;
  /** The most requests of cost 1 that can be admitted at once. */
  limit: number;
  /** How many more requests of cost 1 would be admitted now. Null for a penalty that does not block. */
  remaining: number | null;
  /** How long until the quota is unused again, if nothing else arrives. Null for a concurrency limit. */
  resetAfterMs: number | null;
}

/** The key of each dimension, by the name in the quotas' `by`. A quota without `by` has the name `""`. */
export type Keys = Readonly<Record<string, string>>;

/** A charge that can be settled, and is refunded once. */
export interface Charge {
  /** The token under which the store remembers the charge. */
  token: string;
  /** What was charged: the estimate, or the cost. */
  cost: number;
}

/** What all verdicts by one policy share. */
export interface Told {
  /** The names of the policy's quotas. */
  readonly names: readonly string[];
  /** What the client of a decision is sent. */
  sent(decision: Decision): Sent;
}

/** Names what a gate reads: the application may have loaded this module twice. */
export const NUMBERS = Symbol.for("@tidegate/edge/numbers");

/** Of a request that was not decided on. */
const UNDECIDED: Decision = [UNKNOWN, 0, UNKNOWN, 0, 0, UNKNOWN, 0];

/** The outcome for a request: whether it may go on, why, and what to send to the client. */
export class Verdict {
  /** What to tell of a decision. Undefined if there was none. */
  readonly #told: Told | undefined;
  readonly #numbers: Decision;
  /** What the client is sent. It is written on demand, because most callers need little of it. */
  #sent: Sent | undefined;

  /** Whether the request may go on. */
  readonly allowed: boolean;
  /** `undecided` means that the limiter failed or the request was invalid: see `error`. */
  readonly status: "allowed" | "denied" | "never_admissible" | "undecided";
  /** The key that the request counted against. Undefined if it counted by `keys`, or failed before its key was known. */
  readonly key: string | undefined;
  /** The keys that the request counted against, if its policy has several dimensions or its check had `keys`. */
  readonly keys: Keys | undefined;
  /** The charge to settle or release, if the check had an estimate or a token, or the policy has a concurrency limit. */
  readonly charge: Charge | undefined;
  /** Why the request was not decided on. */
  readonly error: TidegateError | undefined;

  /** `told` tells of a decision, or is what the client is sent if there was none. */
  constructor(told: Told | Sent, decision: Decision | undefined, counted: string | Keys | undefined, charge?: Charge, error?: TidegateError) {
    this.#numbers = decision ?? UNDECIDED;
    if (decision) this.#told = told as Told;
    else this.#sent = told as Sent;
    this.status = decision ? STATUSES[decision[STATUS] as 0 | 1 | 2] : "undecided";
    this.allowed = decision ? decision[STATUS] === 0 : (told as Sent).status === 0;
    const isKey = typeof counted === "string";
    this.key = isKey ? counted : undefined;
    this.keys = isKey ? undefined : counted;
    this.charge = charge;
    this.error = error;
  }

  /** Whether a quota denied the request. False for a request that was rejected because of an error. */
  get limited(): boolean {
    return !this.allowed && this.status !== "undecided";
  }

  /** Whether the request may go on only because the store failed. */
  get failedOpen(): boolean {
    return this.allowed && this.status === "undecided";
  }

  /** The index in `quotas` of the quota that decided. */
  get binding(): number {
    return this.#numbers[BINDING]!;
  }

  /**
   * How long until the same request is admitted, if nothing else arrives. Null if it was admitted or never can be, and if a
   * concurrency limit denies it, because nobody knows when a request ends.
   */
  get retryAfterMs(): number | null {
    return known(this.#numbers[WAIT]!);
  }

  /** How long to delay an allowed request. Only a leaky bucket asks for a delay. */
  get delayMs(): number {
    return this.#numbers[DELAY]!;
  }

  /** The time of the decision, in milliseconds since the epoch by the clock that decided. */
  get decidedAtMs(): number {
    return this.#numbers[AT]!;
  }

  /** Where the decision was made. */
  get origin(): (typeof ORIGINS)[number] | "fail_mode" {
    return ORIGINS[this.#numbers[ORIGIN]!] ?? "fail_mode";
  }

  /** Whether this repeats the earlier answer to a check with the same token, or to a settlement of the same charge. */
  get replayed(): boolean {
    return this.#numbers[REPLAY] === 1;
  }

  /** Each quota's count after the decision, those of one dimension side by side. Empty if there was no decision. */
  get quotas(): readonly QuotaStatus[] {
    return this.#told ? statuses(this.#numbers, this.#told.names) : [];
  }

  /** The decision, for a gate. */
  get [NUMBERS](): Decision {
    return this.#numbers;
  }

  /** The response fields to add to every response to the request. */
  get headers(): Readonly<Record<string, string>> {
    return this.#send.headers;
  }

  /** The response to send instead of the app's: a 429, or after an error a 400 or 503. Undefined if the request may go on. */
  get response(): Response | undefined {
    const { http } = this;
    return http && new Response(http.body, http);
  }

  /** The same for hosts without `Response`, such as Express and AWS Lambda. */
  get http(): Sent | undefined {
    return this.allowed ? undefined : this.#send;
  }

  /**
   * The app's response with the rate limit fields added. If another limiter has added its own, the lists of the IETF draft get
   * both, and the other fields are those of the limiter that denied the request, or else has fewer requests remaining.
   * `Response.error()` is returned as it is.
   */
  onto(response: Response): Response {
    return onto(response, this);
  }

  /** The verdict as plain data for a log, without the response. */
  toJSON(): Record<string, unknown> {
    const { allowed, status, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error } = this;
    return { allowed, status, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error: error?.message };
  }

  get #send(): Sent {
    return (this.#sent ??= this.#told!.sent(this.#numbers));
  }
}

/** The counts of a decision's quotas. Without names, they are empty. */
export function statuses(decision: Decision, names: readonly string[] | undefined): QuotaStatus[] {
  const all: QuotaStatus[] = [];
  for (let at = QUOTAS; at < decision.length; at += EACH) {
    all.push({ name: names?.[all.length] ?? "", limit: decision[at]!, remaining: known(decision[at + 1]!), resetAfterMs: known(decision[at + 2]!) });
  }
  return all;
}

function known(number: number): number | null {
  return number === UNKNOWN ? null : number;
}
