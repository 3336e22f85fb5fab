import type { TidegateError } from "./error.js";

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

/** The outcome for a request: whether it may go on, why, and what to send to the client. */
export class Verdict {
  /** The text that `src/verdict.rs` writes. It is parsed on demand, because most callers need little of it. */
  readonly #text: string;
  #facts: string[] | undefined;
  #headers: Readonly<Record<string, string>> | undefined;

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

  constructor(text: string, counted: string | Keys | undefined, charge?: Charge, error?: TidegateError) {
    const first = text.slice(0, text.indexOf("\n"));
    const space = first.indexOf(" ");
    this.allowed = space < 0;
    this.status = (this.allowed ? first : first.slice(0, space)) as Verdict["status"];
    this.#text = text;
    this.key = typeof counted === "string" ? counted : undefined;
    this.keys = typeof counted === "string" ? undefined : counted;
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
    return Number(this.#fact(0));
  }

  /**
   * How long until the same request is admitted, if nothing else arrives. Null if it was admitted or never can be, and if a
   * concurrency limit denies it, because nobody knows when a request ends.
   */
  get retryAfterMs(): number | null {
    return told(this.#fact(1));
  }

  /** How long to delay an allowed request. Only a leaky bucket asks for a delay. */
  get delayMs(): number {
    return Number(this.#fact(2));
  }

  /** The time of the decision, in milliseconds since the epoch by the clock that decided. */
  get decidedAtMs(): number {
    return Number(this.#fact(3));
  }

  /** Where the decision was made. */
  get origin(): "store" | "deny_cache" | "lease" | "fallback" | "fail_mode" {
    return this.#fact(4) as Verdict["origin"];
  }

  /** Whether this repeats the earlier answer to a check with the same token, or to a settlement of the same charge. */
  get replayed(): boolean {
    return this.#fact(5) === "1";
  }

  /** Each quota's count after the decision, those of one dimension side by side. Empty if there was no decision. */
  get quotas(): readonly QuotaStatus[] {
    const quotas: QuotaStatus[] = [];
    for (let at = 6, name; (name = this.#fact(at)) !== undefined; at += 4) {
      const [remaining, resetAfterMs] = [told(this.#fact(at + 2)), told(this.#fact(at + 3))];
      quotas.push({ name, limit: Number(this.#fact(at + 1)), remaining, resetAfterMs });
    }
    return quotas;
  }

  /** The response fields to add to every response to the request. */
  get headers(): Readonly<Record<string, string>> {
    const pair = (line: string) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)];
    return (this.#headers ??= Object.fromEntries(this.#text.split("\n\n", 1)[0]!.split("\n").slice(2).map(pair)));
  }

  /** The response to send instead of the app's: a 429, or after an error a 400 or 503. Undefined if the request may go on. */
  get response(): Response | undefined {
    const { http } = this;
    return http && new Response(http.body, http);
  }

  /** The same for hosts without `Response`, such as Express and AWS Lambda. */
  get http(): { status: number; headers: Readonly<Record<string, string>>; body: string } | undefined {
    if (this.allowed) return undefined;
    const status = Number(this.#text.slice(this.status.length, this.#text.indexOf("\n")));
    return { status, headers: this.headers, body: this.#text.slice(this.#text.indexOf("\n\n") + 2) };
  }

  /**
   * The app's response with the rate limit fields added. If another limiter has added its own, the lists of the IETF draft get
   * both, and the other fields are those of the limiter that denied the request, or else has fewer requests remaining.
   * `Response.error()` is returned as it is.
   */
  onto(response: Response): Response {
    try {
      this.#into(response.headers);
      return response;
    } catch {
      // `Response.error()` can be neither changed nor copied, and nobody sees its headers.
      if (response.type === "error") return response;
      // The headers of a fetched response cannot be changed.
      const told = new Response(response.body, response);
      this.#into(told.headers);
      return told;
    }
  }

  #into(headers: Headers): void {
    const ours = this.headers;
    const [left, theirs] = [ours[REMAINING], headers.get(REMAINING)].map((text) => Number(text ?? Infinity));
    const keeps = this.allowed && headers.has(REMAINING) && (headers.has("retry-after") || theirs! < left!);
    for (const name in ours) {
      if (LISTS.includes(name) && headers.has(name)) headers.append(name, ours[name]!);
      else if (!keeps) headers.set(name, ours[name]!);
    }
  }

  /** The verdict as plain data for a log, without the response. */
  toJSON(): Record<string, unknown> {
    const { allowed, status, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error } = this;
    return { allowed, status, key, keys, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas, error: error?.message };
  }

  #fact(place: number): string | undefined {
    return (this.#facts ??= this.#text.split("\n", 2)[1]!.split(" "))[place];
  }
}

/** The fields whose values are lists. */
const LISTS = ["ratelimit", "ratelimit-policy"];
const REMAINING = "x-ratelimit-remaining";

function told(number: string | undefined): number | null {
  return number === "-" ? null : Number(number);
}
