import { quietly } from "./callback.js";
import { CHECK_OPTIONS, type Chosen, chosen, costOf, isPromised, optionsReader, positive, uniqueToken } from "./check_options.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import type { Policy } from "./core/policy.js";
import type { Look } from "./core/response.js";
import { balanceOf } from "./core/valid_question.js";
import { invalid, needsPeer, TidegateError } from "./error.js";
import { text, whole } from "./fields.js";
import { FrontEnd, notRequest, readNow, readPart, SETTLE_WITHIN_MS, standing } from "./front_end.js";
import type { GrantOptions } from "./granting.js";
import { LAYER, type Layer, written } from "./layer.js";
import type { Common, ExactCore } from "./limiter_core.js";
import type { Identity, Options } from "./options.js";
import { ask, BLOCK, CHECK, GRANT, PEEK, type Question, REFUND, RESET } from "./question.js";
import type { Keys } from "./core/key.js";
import { type Held, outcomeOf, Verdict } from "./verdict.js";

/** The longest time of a timer, some 25 days. A longer one ends at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/** How to decide on one request. A request with an invalid value is rejected: the verdict's response is a 400. */
export interface CheckOptions {
  /** Count this key instead of the request's sender: any well-formed text, such as `tenant:42`. */
  key?: string | undefined;
  /** The key of each dimension of the policy, as `{ user: "user:7", tenant: "tenant:42" }`. Quotas without `by` count by `key`. */
  keys?: Keys | undefined;
  /** The client's address from the host's own API or socket, for the platforms `direct` and `fastly`. */
  peer?: string | undefined;
  /** The cost of the request, a whole number. Default: 1. */
  cost?: number | undefined;
  /**
   * The estimated cost of a request whose cost is known only afterwards: a whole number of at least 1, in place of `cost`.
   * Settle it to the actual cost with `settle`. The package makes the token of the charge.
   */
  estimate?: number | undefined;
  /** How long an `estimate` can be settled, in milliseconds. Default: 600,000, ten minutes. */
  settleWithinMs?: number | undefined;
  /**
   * The time of the request, in milliseconds since the epoch, if the caller's clock decides. Default: `Date.now()` when the key is known,
   * so after `identify`.
   */
  now?: number | undefined;
  /**
   * Charges all checks with this token once, for `ttlMs` milliseconds. The others are `replayed`; with another cost, the
   * error is `token_reused`. A client that chooses its own token can repeat a request that was admitted for free, so use it
   * only for operations that do nothing the second time.
   */
  idempotency?: { token: string; ttlMs: number } | undefined;
}

/** The options of a decision about a key without a request. */
export type LimitOptions = Omit<CheckOptions, "key" | "keys" | "peer">;

const readCheck = optionsReader({
  ...CHECK_OPTIONS,
  settleWithinMs: positive,
  idempotency: (name: string, value: unknown) => {
    if (!value) return undefined;
    const { token, ttlMs } = value as NonNullable<CheckOptions["idempotency"]>;
    return { token: uniqueToken(`${name}.token`, token), ttlMs: whole(`${name}.ttlMs`, ttlMs) };
  },
});

/** The options that this class reads, with their defaults filled in. */
export interface Ready extends Common {
  identify: Options["identify"];
  onError: Options["onError"];
  onVerdict: Options["onVerdict"];
  /** Why the limiter cannot decide, for example because a variable is missing. */
  broken?: TidegateError | undefined;
  failsOpen: boolean;
  rejectsUnidentified: boolean;
}

/** A limiter of one policy for any `Request`. Make one and keep it: its connections and its deny cache live in it. */
export abstract class Limiter extends FrontEnd {
  /** @internal What a gate asks. */
  readonly [LAYER]: Layer;
  readonly #core: ExactCore;
  readonly #options: Ready;
  /** The question about a key without options. Stores that answer at once keep no question, so this one serves for all. */
  readonly #plain: Question;

  /** `parts` makes the core, and what is asked. */
  protected constructor(options: Ready, parts: () => { core: ExactCore; layer: Layer }) {
    super();
    this.#options = options;
    try {
      const { core, layer } = parts();
      this.#core = core;
      this[LAYER] = layer;
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
    this.#plain = ask(CHECK, this.#core.policy, 0);
  }

  /**
   * Decides on a request, and charges it if every quota admits it.
   *
   * It rejects only for what is no `Request`. If the store fails (`unavailable` or `timeout`), the fail mode decides. After any other error, the request
   * is rejected, because a client could have caused the error. `verdict.error` says what went wrong.
   *
   * `options` may be a promise or a function, also an async one. If it throws, the request is rejected as invalid.
   */
  check(request: Request, options: Chosen<CheckOptions> = {}): Promise<Verdict> {
    return this.#check(request, options, CHECK);
  }

  /** Decides like `check`, but charges nothing. */
  peek(request: Request, options: Chosen<CheckOptions> = {}): Promise<Verdict> {
    return this.#check(request, options, PEEK);
  }

  /**
   * Decides like `check` about a key, or the key of each dimension, without a request:
   *
   *     const { allowed, retryAfterMs } = await tidegate.limit("user:42", { cost: 3 });
   */
  limit(key: string | Keys, options?: LimitOptions): Promise<Verdict> {
    return Promise.resolve(this.begin(key, options, false, (asked) => this.#decide(undefined, asked)));
  }

  /**
   * Decides like `limit`, and waits until the key is admitted, for at most `timeoutMs`. It asks again only when time has
   * replenished what the request needs, and returns the last verdict if that is too late. Then nothing is charged. A leaky bucket
   * admits before its delay: hold the request for `verdict.delayMs`, as after `limit`.
   */
  async blockUntilReady(key: string | Keys, timeoutMs: number, options?: LimitOptions): Promise<Verdict> {
    const until = Date.now() + whole("timeoutMs", timeoutMs);
    for (;;) {
      const verdict = await this.limit(key, options);
      const wait = verdict.retryAfterMs;
      if (!verdict.limited || wait === null || Date.now() + wait > until) return verdict;
      await new Promise((resolve) => setTimeout(resolve, Math.min(wait, TIMEOUT_MS_MAX)));
    }
  }

  override async refund(verdict: Verdict, part: { cost?: number | undefined; now?: number | undefined } = {}): Promise<void> {
    const { key, keys, outcome, charge, decidedAtMs = 0 } = verdict;
    if (charge || outcome !== "allowed") return super.refund(verdict, part);
    await this.told("refund", () => {
      const { cost = 1, now = Date.now() } = readPart(part);
      return this[LAYER].ask({ ...ask(REFUND, this.#core.policy, now), keys: keys ?? key, cost, extra: decidedAtMs });
    });
  }

  /** Resets the counts of a key, or of the key of each dimension. Those of a request are `Verdict.key` or `Verdict.keys`. */
  async reset(keys: string | Keys): Promise<void> {
    await this.told("reset", () => this[LAYER].ask({ ...ask(RESET, this.#core.policy, 0), keys }));
  }

  /**
   * Denies a key, or the key of each dimension, for `ms` milliseconds, whatever it has used. A further block replaces the one before,
   * and a block of 0 ends any block, also a penalty's:
   *
   *     const policy = { name: "login", quotas: ["5 / min", { block: { capMs: 86_400_000 } }] };
   *     await tidegate.block("user:42", 3_600_000);
   *
   * The policy has a `block` or a `penalty`, whose `capMs` is the longest block.
   */
  async block(keys: string | Keys, ms: number, options: { now?: number | undefined } = {}): Promise<void> {
    await this.told("block", () => {
      const { now = Date.now() } = readNow(options);
      return this[LAYER].ask({ ...ask(BLOCK, this.#core.policy, now), keys, extra: whole("ms", ms) });
    });
  }

  /**
   * Adds units to the balance of a key, once for each token, and returns what a request of cost 0 would get then:
   *
   *     const policy = { name: "api", quotas: [{ fixedWindow: { limit: 1_000, windowMs: 86_400_000 } }, balance({ covers: true })] };
   *     await tidegate.grant("user:42", order.units, { token: order.id });
   *
   * Of several dimensions, it needs the key of the balance's only. After an error, repeat it with its token. A repeated one is `replayed`.
   * Throws a `TidegateError`: `invalid` if the balance would pass its `max`, and `token_reused` if the token is of other units.
   */
  grant(keys: string | Keys, units: number, options: GrantOptions): Promise<Verdict> {
    return this.told("grant", async () => {
      const { policy } = this.#core;
      const asked = balanceOf(policy).parts.ask({ ...ask(GRANT, policy, Date.now()), keys }, units, options);
      return new Verdict(standing(asked, await this[LAYER].ask(asked), this.look));
    });
  }

  /** Whether the policy has a concurrency limit, so that each admitted request holds a slot until it is released. */
  get holdsSlots(): boolean {
    return this.#core.policy.holdsSlots;
  }

  /** The key that a request counts against: a verified subject, an API key, the client's address, or `ip:unknown`. */
  async identify(request: Request, peer?: string): Promise<string> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    return this.#sender(request, peer);
  }

  /** What the store supports, and how exact it is. */
  get capabilities(): Capabilities {
    return this.#core.capabilities;
  }

  /**
   * Throws if the limiter cannot decide because a variable or a binding is missing. Such a limiter is made without an error, because a
   * build has none of them, and each request then gets a 503, with any fail mode. So call this where they are there: when a server starts,
   * or before a deployment. It asks no store.
   */
  assertReady(): void {
    if (this.#options.broken) throw this.#options.broken;
  }

  /** Decides about a key by its question. A store that answers at once keeps no question, so one serves for all without options. */
  protected begin<T>(key: string | Keys, options: LimitOptions | undefined, isAtOnce: boolean, decide: (asked: Question) => T): T | Verdict {
    let asked: Question | undefined;
    try {
      asked = this.#named(key, options, isAtOnce ? this.#plain : undefined);
      return decide(asked);
    } catch (thrown) {
      return this.#undecided(CHECK, undefined, asked, thrown);
    }
  }

  protected get look(): Look {
    return this.#options.look;
  }

  protected layerAt(): Layer {
    return this[LAYER];
  }

  protected heldBy({ key, keys, charge }: Verdict): readonly Held[] {
    // No store remembers a charge of nothing.
    return charge!.cost === 0 ? [] : [{ store: 0, policy: this.#core.policy, keys: (keys ?? key)!, cost: charge!.cost }];
  }

  /** The question about a key. `plain` may be it, if there are no options. */
  #named(key: string | Keys, options: LimitOptions | undefined, plain?: Question): Question {
    // An empty text would be one count for all whose name is missing.
    if (!key) throw invalid("key", `${key === "" ? "empty" : "missing"}; write who is counted, such as "user:42"`);
    const isPlain = options === undefined && !this.holdsSlots;
    const asked = isPlain ? (plain ?? ask(CHECK, this.#core.policy, 0)) : read(options ?? {}, CHECK, this.#core.policy).asked;
    if (isPlain) asked.isTimed = false;
    asked.keys = typeof key === "object" ? own(key) : key;
    return asked;
  }

  /** Decides on a request with its sender's keys. */
  async #check(request: Request, options: Chosen<CheckOptions>, kind: typeof CHECK | typeof PEEK): Promise<Verdict> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    let asked: Question | undefined;
    try {
      // What is known is not waited for.
      const given = read(isPromised(options) ? await chosen(options) : options, kind, this.#core.policy);
      const keys = this.#counted(request, given);
      asked = given.asked;
      asked.keys = keys instanceof Promise ? await keys : keys;
    } catch (thrown) {
      return this.#undecided(kind, request, asked, thrown);
    }
    return this.#decide(request, asked);
  }

  #decide(request: Request | undefined, asked: Question): Promise<Verdict> {
    return this[LAYER].ask(asked).then(
      (decision) => this.verdictOf(request, asked, decision),
      (thrown) => this.#undecided(asked.kind, request, asked, thrown),
    );
  }

  protected verdictOf(request: Request | undefined, { kind, keys, token, cost }: Question, decision: Decision): Verdict {
    const core = this.#core;
    const charge = token === undefined ? undefined : { token, cost };
    const { names, holdsSlots } = core.policy;
    const verdict = new Verdict({ outcome: outcomeOf(decision), sent: core.sent, decision, names, keys, charge, holdsSlots });
    if (this.log.hasNews) this.tell(kind === PEEK ? "peek" : "check", undefined, verdict);
    return this.#judged(request, verdict);
  }

  #undecided(kind: Question["kind"], request: Request | undefined, asked: Question | undefined, thrown: unknown): Verdict {
    const error = TidegateError.from(thrown);
    const sent = this.#core.undecided(error.kind, this.#options.failsOpen);
    const { keys, token, cost = 1 } = asked ?? {};
    const charge = token === undefined ? undefined : { token, cost };
    const outcome = sent.status === 0 ? "failed_open" : "failed_closed";
    const verdict = new Verdict({ outcome, sent, keys, charge, holdsSlots: this.holdsSlots, error });
    this.tell(kind === PEEK ? "peek" : "check", error, verdict);
    return this.#judged(request, verdict);
  }

  /** Tells the application of a verdict. */
  #judged(request: Request | undefined, verdict: Verdict): Verdict {
    const { onVerdict } = this.#options;
    if (onVerdict) quietly(() => onVerdict(verdict, request));
    return verdict;
  }

  /** The keys of a request. Quotas without a dimension count by `key`, or by the sender. */
  #counted(request: Request, { key, keys, peer }: ReadCheck): string | Keys | Promise<string | Keys> {
    const names = this.#core.dimensions;
    if (keys === undefined && names.length === 1) return key ?? this.#sender(request, peer);
    if (!names.includes("") || Object.hasOwn(keys ?? {}, "")) {
      if (key !== undefined) throw invalid("key", `no quota counts by it; write ${written(this.#core.policy.dimensions)}`);
      return keys ?? {};
    }
    const sender = key ?? this.#sender(request, peer);
    return typeof sender === "string" ? { ...keys, "": sender } : sender.then((sender) => ({ ...keys, "": sender }));
  }

  #sender(request: Request, peer: string | null | undefined): string | Promise<string> {
    return this.#options.identify ? this.#identified(request, peer) : this.#keyOf(request, peer, {});
  }

  /** The key of who the application says has sent a request. */
  async #identified(request: Request, peer: string | null | undefined): Promise<string> {
    const { identify, rejectsUnidentified } = this.#options;
    let sender: Identity = {};
    try {
      const identity = await identify!(request);
      sender = { subject: named("subject", identity), apiKey: named("apiKey", identity) };
    } catch (cause) {
      const error = invalid("identify", "threw, or returned no well-formed text; return undefined if nobody is known", { cause });
      if (rejectsUnidentified) throw error;
      this.#warnOf(error);
    }
    return this.#keyOf(request, peer, sender);
  }

  #keyOf(request: Request, peer: string | null | undefined, sender: Identity): string {
    // The second field counts only if the first is absent.
    const told = (name: string | undefined) => (name && request.headers.get(name)) || undefined;
    const first = told(this.#core.fields[0]);
    const second = first ? undefined : told(this.#core.fields[1]);
    const key = this.#core.key(first, second, typeof peer === "string" ? peer : undefined, sender);
    if (key === "ip:unknown" && peer === null && !this.#core.fields.length) {
      throw needsPeer(this.#options.platform);
    }
    if (key === "ip:unknown") {
      const where = this.#core.fields.length ? `tells it in ${this.#core.fields.join(" or ")}` : "needs it in `peer`";
      const message = `no client address: ${this.#options.platform} ${where}; all such requests count as ${key}`;
      this.#warnOf(invalid("request", message));
    }
    return key;
  }

  /** Tells that a request is counted by its address, or by none. */
  #warnOf(error: TidegateError): void {
    const { kind, message } = error;
    this.log.failed({ operation: "identify", kind, message, failedOpen: false }, error, "identify");
  }
}

/** A check's options, and the question that they make. */
interface ReadCheck {
  key: string | undefined;
  keys: Keys | undefined;
  peer: string | null | undefined;
  asked: Question;
}

function read(options: unknown, kind: typeof CHECK | typeof PEEK, policy: Policy): ReadCheck {
  const given = readCheck(options);
  const { key, keys, peer, now, estimate, idempotency, settleWithinMs = SETTLE_WITHIN_MS } = given;
  if (estimate !== undefined && idempotency) throw invalid("estimate", "it replaces idempotency; write check(request, { estimate })");
  const asked = ask(kind, policy, now ?? 0);
  asked.isTimed = now !== undefined;
  asked.cost = costOf(given) ?? 1;
  if (estimate !== undefined) asked.extra = settleWithinMs;
  if (idempotency) [asked.token, asked.extra] = [idempotency.token, idempotency.ttlMs];
  // The server makes the token of an estimate: a client that chooses it could repeat a request for free.
  else if (estimate !== undefined || policy.holdsSlots) asked.token = crypto.randomUUID();
  return { key, keys, peer, asked };
}

/** A copy of an object's own fields. What it inherits is not the caller's. */
function own(keys: Keys): Keys {
  return Object.fromEntries(Object.entries(keys));
}

function named(field: keyof Identity, identity: Identity | undefined): string | undefined {
  const name = identity?.[field] ?? undefined;
  return name === undefined ? undefined : text(field, name);
}
