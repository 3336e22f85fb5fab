import type { Decision } from "../core/decide.js";
import type { Sent } from "../core/sent.js";
import type { TidegateError } from "../error.js";
import { AT, BINDING, DELAY, ORIGIN, ORIGINS, REPLAY, UNKNOWN, WAIT } from "../numbers.js";
import { onto } from "../onto.js";
import { type Keys, type QuotaStatus, statuses } from "../verdict.js";
import type { RulesPolicy } from "./policy.js";

/**
 * What a gate did with a request. `unlimited`: no limit applies to it, or its sender is on the list `allow`. `listed`: its sender
 * is on the list `deny`. The others are as in an `Event`.
 */
export type Outcome =
  | "unlimited"
  | "allowed"
  | "denied"
  | "never_admissible"
  | "listed"
  | "challenged"
  | "invalid_token"
  | "failed_open"
  | "failed_closed";

/** A charge that can be settled or released. */
export interface GateCharge {
  /** The token under which the stores remember it. */
  readonly token: string;
  /** What was charged: the estimate, or the cost. */
  readonly cost: number;
}

/** A charge in one store. */
export interface Held {
  /** The place of the store. */
  readonly store: number;
  readonly policy: RulesPolicy;
  readonly keys: Keys;
  readonly cost: number;
}

/** What a gate says of a request. */
export interface Told {
  readonly outcome: Outcome;
  /** What the client is sent. It is written when it is read. */
  readonly sent: () => Sent;
  readonly rule?: string | undefined;
  readonly decision?: Decision | undefined;
  /** The names of the decision's quotas. Undefined if it is one of several. */
  readonly names?: readonly string[] | undefined;
  readonly hold?: readonly Held[] | undefined;
  readonly token?: string | undefined;
  readonly cost?: number;
  readonly error?: TidegateError | undefined;
}

const PASSING: Outcome[] = ["unlimited", "allowed", "failed_open"];

/** The outcome for a request: whether it may go on, why, and what to send to the client. */
export class GateVerdict {
  readonly #told: Told;
  #sent: Sent | undefined;

  /** Whether the request may go on. */
  readonly allowed: boolean;
  readonly outcome: Outcome;
  /** The name of the rule that limits the request. Undefined if none does, or if the request was refused before any counted it. */
  readonly rule: string | undefined;
  /** The charge to settle or release, if the request was charged under a token: one with an estimate, a concurrency limit or a `token`. */
  readonly charge: GateCharge | undefined;
  /** Why the request was not decided on. */
  readonly error: TidegateError | undefined;

  constructor(told: Told) {
    this.#told = told;
    this.allowed = PASSING.includes(told.outcome);
    this.outcome = told.outcome;
    this.rule = told.rule;
    this.charge = told.hold && { token: told.token!, cost: told.cost! };
    this.error = told.error;
  }

  /** Whether a quota denied the request. */
  get limited(): boolean {
    return this.outcome === "denied" || this.outcome === "never_admissible";
  }

  /** Whether the request holds a slot of a concurrency limit until it is released. */
  get holdsSlots(): boolean {
    return this.#told.hold?.some(({ policy }) => policy.holdsSlots) ?? false;
  }

  /** Whether the request may go on only because a store failed. */
  get failedOpen(): boolean {
    return this.outcome === "failed_open";
  }

  /** The index in `quotas` of the quota that decided. */
  get binding(): number {
    return this.#told.decision?.[BINDING] ?? 0;
  }

  /** How long until the same request is admitted, if nothing else arrives. Null if it was not denied, or if that is unknown. */
  get retryAfterMs(): number | null {
    const wait = this.#told.decision?.[WAIT] ?? UNKNOWN;
    return wait === UNKNOWN ? null : wait;
  }

  /** How long to delay an allowed request. Only a leaky bucket asks for a delay. */
  get delayMs(): number {
    return this.#told.decision?.[DELAY] ?? 0;
  }

  /** The time of the decision, in milliseconds since the epoch by the clock that decided. Undefined if there was none. */
  get decidedAtMs(): number | undefined {
    return this.#told.decision?.[AT];
  }

  /** Where the decision was made: in a `store`, or by a `deny_cache`, a `lease`, a `fallback` or a limiter that is `near`. */
  get origin(): string | undefined {
    return this.#told.decision && ORIGINS[this.#told.decision[ORIGIN]!];
  }

  /** Whether this repeats the earlier answer to a check with the same token, or to a settlement of the same charge. */
  get replayed(): boolean {
    return this.#told.decision?.[REPLAY] === 1;
  }

  /** Each quota's count after the decision. Empty if there was no decision. */
  get quotas(): readonly QuotaStatus[] {
    const { decision, names } = this.#told;
    return decision ? statuses(decision, names) : [];
  }

  /** The response fields to add to every response to the request. */
  get headers(): Readonly<Record<string, string>> {
    return this.#send.headers;
  }

  /**
   * The response to send instead of the app's: a 429, a 403 for a listed or a challenged sender, a 401 for an invalid token, and
   * after an error a 400, 409, 500 or 503. Undefined if the request may go on.
   */
  get response(): Response | undefined {
    const { http } = this;
    return http && new Response(http.body, http);
  }

  /** The same for hosts without `Response`, such as Express and AWS Lambda. */
  get http(): { status: number; headers: Readonly<Record<string, string>>; body: string } | undefined {
    return this.allowed ? undefined : this.#send;
  }

  /**
   * The app's response with the rate limit fields added. If another limiter has added its own, the lists of the IETF draft get
   * both, and the other fields are those of the limiter that denied the request, or else has fewer requests remaining.
   */
  onto(response: Response): Response {
    return onto(response, this);
  }

  /** The verdict as plain data for a log, without the response. It has no key and no token. */
  toJSON(): Record<string, unknown> {
    const { allowed, outcome, rule, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error } = this;
    return { allowed, outcome, rule, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error: error?.message };
  }

  /** What was charged, for the gate. */
  static held(verdict: GateVerdict): { token: string; hold: readonly Held[] } | undefined {
    const { token, hold } = verdict.#told;
    return hold && { token: token!, hold };
  }

  get #send(): Sent {
    return (this.#sent ??= this.#told.sent());
  }
}
