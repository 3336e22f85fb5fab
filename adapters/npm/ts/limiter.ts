import { type Answer, Calls } from "./calls.js";
import type { Engine } from "./engine.js";
import { invalid, TidegateError } from "./error.js";
import { shown, whole } from "./fields.js";
import type { Identity, Options } from "./options.js";
import { Verdict } from "./verdict.js";

/** How to decide on one request. */
export interface CheckOptions {
  /** Whom to count in place of the request's sender: a name of your own, as `tenant:42`. Any text but half a character. */
  key?: string;
  /** The address that the host's own API or socket tells, for the platforms `direct` and `fastly`. */
  peer?: string;
  /** What it costs: 1 unless set. */
  cost?: number;
  /** When it is, in milliseconds since the epoch: `Date.now()` unless set. */
  now?: number;
  /** What makes a retry of this check the same check, charged once. */
  idempotency?: { token: string; ttlMs: number };
}

/** What both stores' options come to. */
type Ready = { failsOpen: boolean; platform: string; identify: Options["identify"]; deadlineMs: number };

/** A limiter of one policy for any `Request`. Make one and keep it: its deny cache and its token for reads live in it. */
export abstract class Limiter {
  readonly #engine: Engine;
  readonly #gate: InstanceType<Engine["Gate"]>;
  readonly #calls: Calls;
  readonly #options: Ready;
  readonly #fields: string[];

  protected constructor(engine: Engine, options: Ready) {
    this.#engine = engine;
    this.#options = options;
    try {
      this.#gate = new engine.Gate(options);
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
    this.#calls = new Calls(this.#gate, (wanted, signal) => this.ask(wanted, signal), options.deadlineMs);
    this.#fields = this.#gate.fields().split(",").filter(Boolean);
  }

  /**
   * Decides on a request, and charges it if every quota admits it. It never throws: what cannot be decided, for the store
   * does not answer or nobody can be counted, goes by the fail mode, and the verdict says so.
   */
  check(request: Request, options: CheckOptions = {}): Promise<Verdict> {
    return this.#decide(request, options, false);
  }

  /** What `check` would answer, with nothing charged. */
  peek(request: Request, options: CheckOptions = {}): Promise<Verdict> {
    return this.#decide(request, options, true);
  }

  /** Gives back what a request was charged: all of it, or `cost`. Does nothing where nothing was charged. */
  async refund(verdict: Verdict, { cost = 1, now = Date.now() }: { cost?: number; now?: number } = {}): Promise<void> {
    if (verdict.key === undefined || verdict.status !== "allowed") return;
    try {
      const [key, units, instant] = [verdict.key, whole("cost", cost), whole("now", now)];
      await this.#calls.run((caller) => caller.refund(key, units, verdict.decidedAtMs, instant));
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  /** Forgets what a key used; see `Verdict.key`. */
  async reset(key: string): Promise<void> {
    try {
      const name = readable(key);
      await this.#calls.run((caller) => caller.reset(name));
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  /** Whom a request counts against: a verified subject, an API key, the client's address; else `ip:unknown`. */
  async identify(request: Request, peer?: string): Promise<string> {
    return this.#sender(request, peer, await this.#identity(request));
  }

  /** What the store can do, and how exact it is. */
  get capabilities(): Record<string, unknown> {
    return JSON.parse(this.#gate.capabilities());
  }

  async #decide(request: Request, options: CheckOptions, peeks: boolean): Promise<Verdict> {
    let key: string | undefined;
    try {
      const { cost = 1, now = Date.now(), idempotency } = options;
      if (options.key !== undefined) {
        key = readable(options.key);
      } else {
        const identity = this.#options.identify && (await this.#identity(request));
        key = this.#counted(this.#sender(request, options.peer, identity));
      }
      const ttlMs = idempotency ? whole("idempotency.ttlMs", idempotency.ttlMs) : 0;
      const [counted, units, instant] = [key, whole("cost", cost), whole("now", now)];
      const decide = () =>
        this.#calls.run((caller) => caller.check(counted, units, instant, idempotency?.token, ttlMs, peeks));
      return new Verdict(await this.turn(key, decide), key);
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      return new Verdict(this.#engine.undecided(error.kind, this.#options.failsOpen), key, error);
    }
  }

  /** Does what a call wants of the store. */
  protected abstract ask(wanted: string, signal: AbortSignal | undefined): Promise<Answer>;

  /** When a key's decision may be made: at once, unless the store is better asked in turn. */
  protected turn<T>(_key: string, work: () => Promise<T>): Promise<T> {
    return work();
  }

  async #identity(request: Request): Promise<Identity | undefined> {
    try {
      return await this.#options.identify?.(request);
    } catch (cause) {
      throw invalid("identify", "it has thrown; return undefined where nobody is known", { cause });
    }
  }

  #sender(request: Request, peer: string | undefined, identity: Identity | undefined): string {
    // A second field counts only where the first is absent.
    const told = (name: string | undefined) => (name && request.headers.get(name)) || undefined;
    const first = told(this.#fields[0]);
    const second = first ? undefined : told(this.#fields[1]);
    const [subject, apiKey] = [named("subject", identity?.subject), named("apiKey", identity?.apiKey)];
    try {
      return this.#gate.key(first, second, peer, subject, apiKey);
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  /** Counting all whose address is missing as one client would deny them for each other's sake. */
  #counted(key: string): string {
    if (key !== "ip:unknown") return key;
    const where = this.#fields.length ? `tells it in ${this.#fields.join(" or ")}` : "needs it in `peer`";
    throw invalid("request", `no client address: ${this.#options.platform} ${where}; write the platform that is in front, or a key`);
  }
}

/** A key is any text that has one form in UTF-8, so that no two keys become one. */
function readable(key: string): string {
  if (typeof key !== "string") throw invalid("key", `${shown(key)} is no text; write one, as "tenant:42"`);
  if (/\p{Surrogate}/u.test(key)) throw invalid("key", "holds half a character (a lone surrogate); write well-formed text");
  return key;
}

function named(what: string, name: string | undefined): string | undefined {
  if (name === undefined || name === null) return undefined;
  try {
    return readable(name);
  } catch {
    throw invalid(`identify.${what}`, "no well-formed text; return a string or undefined");
  }
}
