import type { Engine } from "./engine.js";
import { invalid, TollgateError } from "./error.js";
import { shown, whole } from "./fields.js";
import type { Identity, Options } from "./options.js";
import { type Told, Verdict } from "./verdict.js";

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
type Ready = { failsOpen: boolean; platform: string; identify: Options["identify"] };

/** A limiter of one policy for any `Request`. Make one and keep it: its deny cache and its token for reads live in it. */
export abstract class Limiter {
  readonly #engine: Engine;
  readonly #gate: InstanceType<Engine["Gate"]>;
  readonly #options: Ready;
  readonly #fields: string[];

  protected constructor(engine: Engine, options: Ready) {
    this.#engine = engine;
    this.#options = options;
    try {
      this.#gate = new engine.Gate(options);
    } catch (thrown) {
      throw TollgateError.from(thrown);
    }
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
      await this.#gate.refund(verdict.key, whole("cost", cost), verdict.decidedAtMs, whole("now", now));
    } catch (thrown) {
      throw TollgateError.from(thrown);
    }
  }

  /** Forgets what a key used; see `Verdict.key`. */
  async reset(key: string): Promise<void> {
    try {
      await this.#gate.reset(readable(key));
    } catch (thrown) {
      throw TollgateError.from(thrown);
    }
  }

  /** Whom a request counts against: a verified subject, an API key, the client's address; else `ip:unknown`. */
  async identify(request: Request, peer?: string): Promise<string> {
    let identity: Identity | undefined;
    try {
      identity = await this.#options.identify?.(request);
    } catch (cause) {
      throw invalid("identify", "it has thrown; return undefined where nobody is known", { cause });
    }
    const { subject, apiKey } = identity ?? {};
    const [first, second] = this.#fields.map((name) => request.headers.get(name) ?? undefined);
    try {
      return this.#gate.key(first, second, peer, named("subject", subject), named("apiKey", apiKey));
    } catch (thrown) {
      throw TollgateError.from(thrown);
    }
  }

  /** What the store can do, and how exact it is. */
  get capabilities(): Record<string, unknown> {
    return JSON.parse(this.#gate.capabilities());
  }

  async #decide(request: Request, options: CheckOptions, peeks: boolean): Promise<Verdict> {
    let key: string | undefined;
    try {
      const { cost = 1, now = Date.now(), idempotency } = options;
      key = options.key === undefined ? await this.#sender(request, options.peer) : readable(options.key);
      const ttlMs = idempotency ? whole("idempotency.ttlMs", idempotency.ttlMs) : 0;
      const [counted, units, instant] = [key, whole("cost", cost), whole("now", now)];
      const ask = () => this.#gate.check(counted, units, instant, idempotency?.token, ttlMs, peeks);
      return new Verdict(JSON.parse(await this.turn(key, ask)) as Told, key);
    } catch (thrown) {
      const error = TollgateError.from(thrown);
      return new Verdict(JSON.parse(this.#engine.undecided(error.kind, this.#options.failsOpen)), key, error);
    }
  }

  /** When a key's decision may be made: at once, unless the store is better asked in turn. */
  protected turn<T>(_key: string, work: () => Promise<T>): Promise<T> {
    return work();
  }

  /** Counting all whose address is missing as one client would deny them for each other's sake. */
  async #sender(request: Request, peer: string | undefined): Promise<string> {
    const key = await this.identify(request, peer);
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
