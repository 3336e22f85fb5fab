import type { TidegateError } from "./error.js";

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

/** What became of a request: may it go on, why, and what to tell the client. */
export class Verdict {
  /** As `src/verdict.rs` writes it. It is taken apart when somebody asks, for most ask for little. */
  readonly #text: string;
  #facts: string[] | undefined;
  #headers: Readonly<Record<string, string>> | undefined;

  /** Whether the request may go on. */
  readonly allowed: boolean;
  /** `undecided` where the limiter failed, and the fail mode chose. */
  readonly status: "allowed" | "denied" | "never_admissible" | "undecided";
  /** Whom it counted against; undefined where nobody could be named. */
  readonly key: string | undefined;
  /** Why the limiter failed. */
  readonly error: TidegateError | undefined;

  constructor(text: string, key: string | undefined, error?: TidegateError) {
    const first = text.slice(0, text.indexOf("\n"));
    const space = first.indexOf(" ");
    this.allowed = space < 0;
    this.status = (this.allowed ? first : first.slice(0, space)) as Verdict["status"];
    this.#text = text;
    this.key = key;
    this.error = error;
  }

  /** Whether a quota denied it. A request that is refused because the limiter failed was not. */
  get limited(): boolean {
    return !this.allowed && this.status !== "undecided";
  }

  /** Whether it may go on only because the limiter failed. */
  get failedOpen(): boolean {
    return this.allowed && this.status === "undecided";
  }

  /** Which quota bound, as a place in `quotas`. */
  get binding(): number {
    return Number(this.#fact(0));
  }

  /** How long until the same request is admitted, if nothing else arrives. */
  get retryAfterMs(): number | null {
    return told(this.#fact(1));
  }

  /** How long to hold an allowed request before going on: only a leaky bucket asks for that. */
  get delayMs(): number {
    return Number(this.#fact(2));
  }

  /** When it was decided, by the clock that decided: what a refund names. */
  get decidedAtMs(): number {
    return Number(this.#fact(3));
  }

  /** Where it was decided. */
  get origin(): "store" | "deny_cache" | "fail_mode" {
    return this.#fact(4) as Verdict["origin"];
  }

  /** Each quota's count after this, in the policy's order; none where the limiter failed. */
  get quotas(): readonly QuotaStatus[] {
    const quotas: QuotaStatus[] = [];
    for (let at = 5, name; (name = this.#fact(at)) !== undefined; at += 4) {
      const [remaining, resetAfterMs] = [told(this.#fact(at + 2)), told(this.#fact(at + 3))];
      quotas.push({ name, limit: Number(this.#fact(at + 1)), remaining, resetAfterMs });
    }
    return quotas;
  }

  /** The response fields, for every response to the request. */
  get headers(): Readonly<Record<string, string>> {
    const pair = (line: string) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)];
    return (this.#headers ??= Object.fromEntries(this.#text.split("\n\n", 1)[0]!.split("\n").slice(2).map(pair)));
  }

  /** The whole response in place of the app's: a 429, or a 503 where the limiter failed. Undefined if it may go on. */
  get response(): Response | undefined {
    if (this.allowed) return undefined;
    const status = Number(this.#text.slice(this.status.length, this.#text.indexOf("\n")));
    return new Response(this.#text.slice(this.#text.indexOf("\n\n") + 2), { status, headers: this.headers });
  }

  /** The app's response with the fields that tell the client how it stands. */
  onto(response: Response): Response {
    let told = response;
    const { headers } = this;
    try {
      for (const name in headers) told.headers.set(name, headers[name]!);
    } catch {
      // A response that was fetched has headers that cannot be changed.
      told = new Response(response.body, response);
      for (const name in headers) told.headers.set(name, headers[name]!);
    }
    return told;
  }

  /** All but what is for the client, as plain data: for a log. */
  toJSON(): Record<string, unknown> {
    const { allowed, status, key, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, quotas, error } = this;
    return { allowed, status, key, failedOpen, binding, retryAfterMs, delayMs, decidedAtMs, origin, quotas, error: error?.message };
  }

  #fact(place: number): string | undefined {
    return (this.#facts ??= this.#text.split("\n", 2)[1]!.split(" "))[place];
  }
}

function told(number: string | undefined): number | null {
  return number === "-" ? null : Number(number);
}
