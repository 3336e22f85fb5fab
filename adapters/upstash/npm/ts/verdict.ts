import type { TollgateError } from "./error.js";

/** One quota's count. What a store does not tell is null, never invented. */
export interface QuotaStatus {
  name: string;
  /** The most that is ever admitted at once. */
  limit: number;
  /** How many more requests of cost 1 would be admitted now. */
  remaining: number | null;
  /** How long until the quota is wholly unused, if nothing else arrives. */
  resetAfterMs: number | null;
}

/** What the WebAssembly says of a request. */
export interface Told {
  status: "allowed" | "denied" | "never_admissible";
  binding: number;
  quotas: QuotaStatus[];
  retryAfterMs: number | null;
  delayMs: number;
  decidedAtMs: number;
  origin: "store" | "deny_cache";
  headers: Record<string, string>;
  refusal?: { status: number; body: string };
}

/** What became of a request: may it go on, why, and what to tell the client. */
export class Verdict {
  readonly #refusal: Told["refusal"];

  /** Whether the request may go on. */
  readonly allowed: boolean;
  /** Whether a quota denied it. A request that is refused because the limiter failed was not. */
  readonly limited: boolean;
  /** `undecided` where the limiter failed, and the fail mode chose. */
  readonly status: Told["status"] | "undecided";
  /** Where it was decided. */
  readonly origin: Told["origin"] | "fail_mode";
  /** Whether it may go on only because the limiter failed. */
  readonly failedOpen: boolean;
  /** Why the limiter failed. */
  readonly error: TollgateError | undefined;
  /** Each quota's count after this, in the policy's order; none where the limiter failed. */
  readonly quotas: readonly QuotaStatus[];
  /** Which quota bound, as a place in `quotas`. */
  readonly binding: number;
  /** How long until the same request is admitted, if nothing else arrives. */
  readonly retryAfterMs: number | null;
  /** How long to hold an allowed request before going on: only a leaky bucket asks for that. */
  readonly delayMs: number;
  /** When it was decided, by the clock that decided: what a refund names. */
  readonly decidedAtMs: number;
  /** The response fields, for every response to the request. */
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    told: Partial<Told> & Pick<Told, "headers">,
    /** Whom it counted against; undefined where nobody could be named. */
    readonly key: string | undefined,
    error?: TollgateError,
  ) {
    this.#refusal = told.refusal;
    this.allowed = told.refusal === undefined;
    this.limited = told.status !== undefined && !this.allowed;
    this.status = told.status ?? "undecided";
    this.origin = told.origin ?? "fail_mode";
    this.failedOpen = told.status === undefined && this.allowed;
    this.error = error;
    this.quotas = told.quotas ?? [];
    this.binding = told.binding ?? 0;
    this.retryAfterMs = told.retryAfterMs ?? null;
    this.delayMs = told.delayMs ?? 0;
    this.decidedAtMs = told.decidedAtMs ?? 0;
    this.headers = told.headers;
  }

  /** The whole response in place of the app's: a 429, or a 503 where the limiter failed. Undefined if it may go on. */
  get response(): Response | undefined {
    return this.#refusal && new Response(this.#refusal.body, { status: this.#refusal.status, headers: this.headers });
  }

  /** The app's response with the fields that tell the client how it stands. */
  onto(response: Response): Response {
    let told = response;
    try {
      for (const name in this.headers) told.headers.set(name, this.headers[name]!);
    } catch {
      // A response that was fetched has headers that cannot be changed.
      told = new Response(response.body, response);
      for (const name in this.headers) told.headers.set(name, this.headers[name]!);
    }
    return told;
  }
}
