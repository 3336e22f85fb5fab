import type { TidegateError } from "../error.js";
import type { QuotaStatus } from "../verdict.js";
import { onto } from "../onto.js";

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

/** A charge in one store: the places of the store and of its policy, and the name and the key of each dimension. */
export type Held = [store: number, policy: number, known: null, ...keys: string[]];

/** A verdict as the WebAssembly writes it: see `src/rules/told.rs`. */
export interface Told {
  outcome: Outcome;
  fields: Record<string, string>;
  status?: number;
  body?: string;
  rule?: string;
  decision?: [binding: number, retryAfterMs: number | null, delayMs: number, decidedAtMs: number, origin: string, replayed: boolean, ...quotas: unknown[]];
  hold?: Held[];
  slots?: boolean;
  token?: string;
  cost?: number;
}

const PASSING: Outcome[] = ["unlimited", "allowed", "failed_open"];

/** The outcome for a request: whether it may go on, why, and what to send to the client. */
export class GateVerdict {
  readonly #told: Told;

  /** Whether the request may go on. */
  readonly allowed: boolean;
  readonly outcome: Outcome;
  /** The name of the rule that limits the request. Undefined if none does, or if the request was refused before any counted it. */
  readonly rule: string | undefined;
  /** The charge to settle or release, if the request was charged under a token: one with an estimate, a concurrency limit or a `token`. */
  readonly charge: GateCharge | undefined;
  /** Why the request was not decided on. */
  readonly error: TidegateError | undefined;

  constructor(told: Told, error?: TidegateError) {
    this.#told = told;
    this.allowed = PASSING.includes(told.outcome);
    this.outcome = told.outcome;
    this.rule = told.rule;
    this.charge = told.hold && { token: told.token!, cost: told.cost! };
    this.error = error;
  }

  /** Whether a quota denied the request. */
  get limited(): boolean {
    return this.outcome === "denied" || this.outcome === "never_admissible";
  }

  /** Whether the request holds a slot of a concurrency limit until it is released. */
  get holdsSlots(): boolean {
    return this.#told.slots ?? false;
  }

  /** Whether the request may go on only because a store failed. */
  get failedOpen(): boolean {
    return this.outcome === "failed_open";
  }

  /** The index in `quotas` of the quota that decided. */
  get binding(): number {
    return this.#told.decision?.[0] ?? 0;
  }

  /** How long until the same request is admitted, if nothing else arrives. Null if it was not denied, or if that is unknown. */
  get retryAfterMs(): number | null {
    return this.#told.decision?.[1] ?? null;
  }

  /** How long to delay an allowed request. Only a leaky bucket asks for a delay. */
  get delayMs(): number {
    return this.#told.decision?.[2] ?? 0;
  }

  /** The time of the decision, in milliseconds since the epoch by the clock that decided. Undefined if there was none. */
  get decidedAtMs(): number | undefined {
    return this.#told.decision?.[3];
  }

  /** Where the decision was made: in a `store`, or by a `deny_cache`, a `lease`, a `fallback` or a limiter that is `near`. */
  get origin(): string | undefined {
    return this.#told.decision?.[4];
  }

  /** Whether this repeats the earlier answer to a check with the same token, or to a settlement of the same charge. */
  get replayed(): boolean {
    return this.#told.decision?.[5] ?? false;
  }

  /** Each quota's count after the decision. Empty if there was no decision. */
  get quotas(): readonly QuotaStatus[] {
    const facts = this.#told.decision?.slice(6) ?? [];
    const quotas: QuotaStatus[] = [];
    for (let at = 0; at < facts.length; at += 4) {
      const [name, limit, remaining, resetAfterMs] = facts.slice(at, at + 4) as [string, number, number | null, number | null];
      quotas.push({ name, limit, remaining, resetAfterMs });
    }
    return quotas;
  }

  /** The response fields to add to every response to the request. */
  get headers(): Readonly<Record<string, string>> {
    return this.#told.fields;
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
    if (this.allowed) return undefined;
    return { status: this.#told.status ?? 503, headers: this.headers, body: this.#told.body ?? "" };
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
  static held(verdict: GateVerdict): { token: string; hold: Held[] } | undefined {
    const { token, hold } = verdict.#told;
    return hold && { token: token!, hold };
  }
}
