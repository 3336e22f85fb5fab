import { type Answer, Calls } from "./calls.js";
import type { Engine } from "./engine.js";
import { invalid, TidegateError } from "./error.js";
import { whole } from "./fields.js";
import type { Identity, Operation, Options } from "./options.js";
import type { Queue } from "./queue.js";
import { Verdict } from "./verdict.js";

/** How to decide on one request. A request with an invalid value is rejected: the verdict's response is a 400. */
export interface CheckOptions {
  /** Count this key instead of the request's sender: any well-formed text, such as `tenant:42`. */
  key?: string;
  /** The client's address from the host's own API or socket, for the platforms `direct` and `fastly`. */
  peer?: string | undefined;
  /** The cost of the request, a whole number. Default: 1. */
  cost?: number;
  /** The time of the request, in milliseconds since the epoch, if the caller's clock decides. Default: `Date.now()`. */
  now?: number;
  /**
   * Charges all checks with this token once, for `ttlMs` milliseconds. A client that chooses its own token can repeat a
   * request that was admitted for free, so use it only for operations that do nothing the second time.
   */
  idempotency?: { token: string; ttlMs: number };
}

/** The options that this class reads, with their defaults filled in. */
type Ready = {
  identify: Options["identify"];
  onError: Options["onError"];
  failsOpen: boolean;
  rejectsUnidentified: boolean;
  platform: string;
  deadlineMs: number;
};

/** A limiter of one policy for any `Request`. Make one and keep it: its connections and its deny cache live in it. */
export abstract class Limiter {
  readonly #engine: Engine;
  readonly #gate: InstanceType<Engine["Gate"]>;
  readonly #calls: Calls;
  readonly #options: Ready;
  readonly #fields: string[];

  protected constructor(engine: Engine, options: Ready, queue?: Queue) {
    this.#engine = engine;
    this.#options = options;
    try {
      this.#gate = new engine.Gate(options);
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
    this.#calls = new Calls(this.#gate, (wanted, signal) => this.ask(wanted, signal), options.deadlineMs, queue);
    this.#fields = this.#gate.fields().split(",").filter(Boolean);
  }

  /**
   * Decides on a request, and charges it if every quota admits it.
   *
   * It never throws. If the store fails (`unavailable` or `timeout`), the fail mode decides. After any other error, the request
   * is rejected, because a client could have caused the error. `verdict.error` says what went wrong.
   *
   * `options` may be a function. If it throws, the request is rejected as invalid.
   */
  check(request: Request, options: CheckOptions | (() => CheckOptions) = {}): Promise<Verdict> {
    return this.#decide(request, options, "check");
  }

  /** Decides like `check`, but charges nothing. */
  peek(request: Request, options: CheckOptions | (() => CheckOptions) = {}): Promise<Verdict> {
    return this.#decide(request, options, "peek");
  }

  /** Refunds what a request was charged, or the part `cost` of it. Does nothing if nothing was charged. */
  async refund(verdict: Verdict, { cost = 1, now = Date.now() }: { cost?: number; now?: number } = {}): Promise<void> {
    const { key, status } = verdict;
    if (key === undefined || status !== "allowed") return;
    await this.#told("refund", () => {
      const [units, instant] = [whole("cost", cost), whole("now", now)];
      return this.#calls.run(key, (caller) => caller.refund(key, units, verdict.decidedAtMs, instant));
    });
  }

  /** Resets the counts of a key. The key of a request is `Verdict.key`. */
  async reset(key: string): Promise<void> {
    await this.#told("reset", () => {
      const name = text("key", key);
      return this.#calls.run(name, (caller) => caller.reset(name));
    });
  }

  /** The key that a request counts against: a verified subject, an API key, the client's address, or `ip:unknown`. */
  async identify(request: Request, peer?: string): Promise<string> {
    return this.#sender(request, peer);
  }

  /** What the store supports, and how exact it is. */
  get capabilities(): Record<string, unknown> {
    return JSON.parse(this.#gate.capabilities());
  }

  /** Sends a call's request to the store. */
  protected abstract ask(wanted: string, signal: AbortSignal | undefined): Promise<Answer>;

  async #decide(request: Request, options: CheckOptions | (() => CheckOptions), operation: "check" | "peek"): Promise<Verdict> {
    let key: string | undefined;
    try {
      const { peer, cost, now, token, ttlMs, ...chosen } = read(options);
      const counted = (key = chosen.key ?? (await this.#sender(request, peer)));
      const peeks = operation === "peek";
      const said = await this.#calls.run(counted, (caller) => caller.check(counted, cost, now, token, ttlMs, peeks));
      return new Verdict(said, key);
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      const verdict = new Verdict(this.#engine.undecided(error.kind, this.#options.failsOpen), key, error);
      this.#tell(operation, error, verdict.failedOpen);
      return verdict;
    }
  }

  /** Runs a call, and reports its error before it throws it. */
  async #told(operation: Operation, run: () => Promise<unknown>): Promise<void> {
    try {
      await run();
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.#tell(operation, error, false);
      throw error;
    }
  }

  /** Reports an error to `onError`. The async function turns anything that the callback throws into a rejection. */
  #tell(operation: Operation, { kind, message }: TidegateError, failedOpen: boolean): void {
    const { onError } = this.#options;
    if (onError) (async () => onError({ operation, kind, message, failedOpen }))().catch(() => undefined);
  }

  async #sender(request: Request, peer: string | undefined): Promise<string> {
    const { identify, rejectsUnidentified, platform } = this.#options;
    let [subject, apiKey]: (string | undefined)[] = [];
    try {
      const identity = await identify?.(request);
      [subject, apiKey] = [named("subject", identity), named("apiKey", identity)];
    } catch (cause) {
      const error = invalid("identify", "threw, or returned no well-formed text; return undefined if nobody is known", { cause });
      if (rejectsUnidentified) throw error;
      this.#tell("identify", error, false);
    }
    // The second field counts only if the first is absent.
    const told = (name: string | undefined) => (name && request.headers.get(name)) || undefined;
    const first = told(this.#fields[0]);
    const second = first ? undefined : told(this.#fields[1]);
    const key = this.#gate.key(first, second, typeof peer === "string" ? peer : undefined, subject, apiKey);
    if (key === "ip:unknown") {
      const where = this.#fields.length ? `tells it in ${this.#fields.join(" or ")}` : "needs it in `peer`";
      const message = `no client address: ${platform} ${where}; all such requests count as ${key}`;
      this.#tell("identify", invalid("request", message), false);
    }
    return key;
  }
}

/** Reads a check's options. Any error in them makes the request invalid. */
function read(options: CheckOptions | (() => CheckOptions)) {
  try {
    const { key, peer, cost = 1, now = Date.now(), idempotency } = typeof options === "function" ? options() : options;
    return {
      key: key === undefined ? undefined : text("key", key),
      peer,
      cost: whole("cost", cost),
      now: whole("now", now),
      token: idempotency && text("idempotency.token", idempotency.token),
      ttlMs: idempotency ? whole("idempotency.ttlMs", idempotency.ttlMs) : 0,
    };
  } catch (cause) {
    throw cause instanceof TidegateError ? cause : invalid("options", "reading them threw", { cause });
  }
}

/** A text that has one form in UTF-8, so that no two keys become one. The message does not repeat it: it may be a secret. */
function text(field: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(field, "not a string");
  if (/\p{Surrogate}/u.test(value)) throw invalid(field, "contains a lone surrogate; write well-formed text");
  return value;
}

function named(field: keyof Identity, identity: Identity | undefined): string | undefined {
  const name = identity?.[field] ?? undefined;
  return name === undefined ? undefined : text(field, name);
}
