import type { Decision } from "./core/decide.js";
import type { Keys } from "./core/key.js";
import type { Policy } from "./core/policy.js";
import type { Sent } from "./core/response.js";
import type { Question } from "./question.js";
import { AT, BINDING, DELAY, EACH, ORIGIN, ORIGINS, PAID, QUOTAS, REPLAY, STATUS, STATUSES, UNKNOWN, WAIT } from "./decision_numbers.js";
import type { TidegateError } from "./error.js";
import { onto } from "./response_headers.js";

/** One quota's count. A number that the store does not report is null. */
export interface QuotaStatus {
  name: string;
  /** The most requests of cost 1 that can be admitted at once. */
  limit: number;
  /** How many more requests of cost 1 would be admitted now. Null for a penalty that does not block. */
  remaining: number | null;
  /** How long until the quota is unused again, if nothing else arrives. Null for a concurrency limit and a balance. */
  resetAfterMs: number | null;
}

/** A charge that can be settled, and is refunded once. */
export interface Charge {
  /** The token under which the store remembers the charge. */
  token: string;
  /** What was charged: the estimate, or the cost. */
  cost: number;
}

/**
 * What became of a request. `allowed`, `denied` and `never_admissible`: its limits have decided. `failed_open` and `failed_closed`: the store
 * has failed, or another error has kept them from it. Only a gate has the others. `unlimited`: no limit applies to the request, or its
 * sender is on the list `allow`. `listed`: its sender is on the list `deny`. `challenged`: its rule asks for a challenge. `invalid_token`: its
 * token is invalid, and the rule refuses such requests.
 */
export type Outcome = (typeof STATUSES)[number] | "failed_open" | "failed_closed" | "unlimited" | "listed" | "challenged" | "invalid_token";

/** A charge in one store, to settle or to release. */
export interface Held {
  /** The place of the store. */
  readonly store: number;
  readonly policy: Policy;
  readonly keys: string | Keys;
  readonly cost: number;
  /** Hears of its settlement. */
  settled?(decision: Decision, settlement: Question, charged: number): unknown;
}

/** What several verdicts may tell. */
export interface SharedParts {
  /** Undefined if the decision says it. */
  readonly outcome?: Outcome | undefined;
  /** What the client is sent, or what writes it: on demand, because most callers need little of it. */
  readonly sent: Sent | ((decision: Decision) => Sent);
  readonly decision?: Decision | undefined;
  /** The names of the decision's quotas. Undefined if it is one of several. */
  readonly names?: readonly string[] | undefined;
  readonly rule?: string | undefined;
  readonly keys?: string | Keys | undefined;
  readonly charge?: Charge | undefined;
  /** Where a gate has made the charge. */
  readonly held?: readonly Held[] | undefined;
  /** Whether the charge has slots. */
  readonly holdsSlots?: boolean;
  /** The highest part of a limit that is reached, of those at which the rules of a gate warn. Or 0. */
  readonly level?: number | undefined;
  readonly error?: TidegateError | undefined;
}

/** What a verdict tells. */
export interface VerdictParts extends SharedParts {
  readonly outcome: Outcome;
}

/** The outcome of a decision. */
export function outcomeOf(decision: Decision): Outcome {
  return STATUSES[decision[STATUS] as 0 | 1 | 2];
}

/** The outcome for a request: whether it may go on, why, and what to send to the client. */
export class Verdict {
  readonly #told: SharedParts;
  readonly #decision: Decision | undefined;
  #sent: Sent | undefined;

  /** Whether the request may go on. */
  declare readonly allowed: boolean;
  declare readonly outcome: Outcome;
  /** The name of the gate's rule that limits the request. Undefined if none does, or if the request was refused before any counted it. */
  declare readonly rule: string | undefined;
  /** The key that the request counted against. Undefined for a gate, and if it counted by `keys`, or failed before its key was known. */
  declare readonly key: string | undefined;
  /** The keys that the request counted against, if its policy has several dimensions or its check had `keys`. Undefined for a gate. */
  declare readonly keys: Keys | undefined;
  /** The charge to settle or release, if the check had an estimate or a token, or a limit is a concurrency limit. */
  declare readonly charge: Charge | undefined;
  /** Why the request was not decided on. */
  declare readonly error: TidegateError | undefined;

  /** A limiter's verdicts share what they tell, but for the decision, its keys and its charge: each decision makes few objects. */
  constructor(told: SharedParts, decision = told.decision, keys = told.keys, charge = told.charge) {
    const outcome = told.outcome ?? outcomeOf(decision!);
    this.#told = told;
    this.#decision = decision;
    this.allowed = outcome === "allowed" || outcome === "failed_open" || outcome === "unlimited";
    this.outcome = outcome;
    this.rule = told.rule;
    const isKey = typeof keys === "string";
    this.key = isKey ? keys : undefined;
    this.keys = isKey ? undefined : keys;
    this.charge = charge;
    this.error = told.error;
  }

  /** Whether a quota denied the request. False for a request that was rejected because of an error. */
  get limited(): boolean {
    return this.outcome === "denied" || this.outcome === "never_admissible";
  }

  /**
   * The highest part of a limit that the sender has reached, in percent, of those in `warn_at` of a gate's rules: so an application may answer
   * with a cheaper model, or show a banner. 100 if a limit denies the request. Null below all parts, and if no store has decided.
   */
  get level(): number | null {
    return this.limited ? 100 : this.#told.level || null;
  }

  /** Whether the request may go on only because the store failed. */
  get failedOpen(): boolean {
    return this.outcome === "failed_open";
  }

  /** Whether the request holds a slot of a concurrency limit until it is released. */
  get holdsSlots(): boolean {
    return this.charge !== undefined && this.#told.holdsSlots === true;
  }

  /** The index in `quotas` of the quota that decided. */
  get binding(): number {
    return this.#decision?.[BINDING] ?? 0;
  }

  /**
   * How long until the same request is admitted, if nothing else arrives. Null if it was admitted or never can be, and if a
   * concurrency limit or a balance denies it, because nobody knows when a request ends or a grant comes.
   */
  get retryAfterMs(): number | null {
    return known(this.#decision?.[WAIT] ?? UNKNOWN);
  }

  /** How long to delay an allowed request. Only a leaky bucket asks for a delay. */
  get delayMs(): number {
    return this.#decision?.[DELAY] ?? 0;
  }

  /** The time of the decision, in milliseconds since the epoch by the clock that decided. Undefined if there was none. */
  get decidedAtMs(): number | undefined {
    return this.#decision?.[AT];
  }

  /** Where the decision was made: in a `store`, or by a `deny_cache`, a `lease`, a `fallback` or a limiter that is `near`. */
  get origin(): (typeof ORIGINS)[number] | undefined {
    return this.#decision && ORIGINS[this.#decision[ORIGIN]!];
  }

  /** Whether this repeats the earlier answer to a check with the same token, or to a settlement of the same charge. */
  get replayed(): boolean {
    return this.#decision?.[REPLAY] === 1;
  }

  /** How much of the cost a balance has paid. 0 unless the request was allowed. */
  get fromBalance(): number {
    return this.#decision?.[PAID] ?? 0;
  }

  /** Each quota's count after the decision, those of one dimension side by side. Empty if there was no decision. */
  get quotas(): readonly QuotaStatus[] {
    const [decision, { names }] = [this.#decision, this.#told];
    const all: QuotaStatus[] = [];
    for (let at = QUOTAS; decision && at < decision.length; at += EACH) {
      all.push({ name: names?.[all.length] ?? "", limit: decision[at]!, remaining: known(decision[at + 1]!), resetAfterMs: known(decision[at + 2]!) });
    }
    return all;
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

  /** The verdict as plain data for a log, without the response. That of a gate has no key. */
  toJSON(): Record<string, unknown> {
    const { allowed, outcome, rule, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, fromBalance, quotas, error } = this;
    return { allowed, outcome, rule, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, fromBalance: fromBalance || undefined, quotas, error: error?.message };
  }

  /** Where a gate has charged the request. */
  static held(verdict: Verdict): readonly Held[] | undefined {
    return verdict.#told.held;
  }

  get #send(): Sent {
    const { sent } = this.#told;
    return (this.#sent ??= typeof sent === "function" ? sent(this.#decision!) : sent);
  }
}

function known(number: number): number | null {
  return number === UNKNOWN ? null : number;
}
