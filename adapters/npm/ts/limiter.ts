import type { Runner } from "./calls.js";
import { type Common, Core } from "./core.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import type { MakeRule } from "./core/policy.js";
import { invalid, isStoreFailure, TidegateError } from "./error.js";
import { only, whole } from "./fields.js";
import { type Chosen, chosen, isPromised, notRequest, quietly, text } from "./given.js";
import { FailureLog, Health, isBack, TELL } from "./log.js";
import { FROM_STORE, ORIGIN } from "./numbers.js";
import type { ErrorEvent, Identity, Operation, Options } from "./options.js";
import { ask, BLOCK, CHECK, PEEK, type Question, REFUND, RESET, SETTLE, timed } from "./question.js";
import { type Charge, type Keys, Verdict } from "./verdict.js";

/** How long an estimate can be settled unless the check says otherwise: ten minutes. */
const SETTLE_WITHIN_MS = 600_000;

/** The longest time of a timer, some 25 days. A longer one ends at once. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/** A settlement to what was charged, in place of a cost. */
const WHAT_WAS_CHARGED = -1;

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

const PART_OPTIONS = ["cost", "now"];
const NOW_OPTIONS = ["now"];
const CHECK_OPTIONS = ["key", "keys", "peer", "cost", "estimate", "settleWithinMs", "now", "idempotency"];

/** The options that this class reads, with their defaults filled in. */
interface Ready extends Common {
  identify: Options["identify"];
  onError: Options["onError"];
  onVerdict: Options["onVerdict"];
  /** Why the limiter cannot decide, for example because a variable is missing. */
  broken?: TidegateError | undefined;
  failsOpen: boolean;
  rejectsUnidentified: boolean;
}

/** The name of a limiter's method for gates. */
export const KNOWN = Symbol.for("@tidegate/edge/known");

/** A limiter of one policy for any `Request`. Make one and keep it: its connections and its deny cache live in it. */
export abstract class Limiter {
  readonly #core: Core;
  readonly #runner: Runner;
  readonly #options: Ready;
  /** The question about a key without options. Stores that answer at once keep no question, so this one serves for all. */
  readonly #plain = ask(CHECK, 0);
  readonly #log: FailureLog<ErrorEvent>;
  readonly #health = new Health();

  /** `capabilities` are those of the store, `makeRule` makes what it counts by, and `runner` asks it. */
  protected constructor(options: Ready, capabilities: Capabilities, makeRule: MakeRule, runner: (core: Core) => Runner) {
    this.#options = options;
    this.#log = new FailureLog(options.onError);
    try {
      this.#core = new Core(options, capabilities, makeRule);
      this.#runner = runner(this.#core);
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
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
    if (!this.#runner.run) return Promise.resolve(this.decideNow(key, options));
    let asked: Question;
    try {
      asked = this.#named(key, options);
    } catch (thrown) {
      return Promise.resolve(this.#undecided(CHECK, undefined, undefined, thrown));
    }
    return this.#decide(undefined, asked);
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

  /**
   * Settles a request that was charged an `estimate` to what it cost, a whole number:
   *
   *     const verdict = await tidegate.check(request, { estimate: 2_000 });
   *     if (verdict.response) return verdict.response;
   *     const { answer, tokens } = await complete(request);
   *     await tidegate.settle(verdict, { cost: tokens });
   *
   * What it cost less is returned, less what time has replenished since. What it cost more is charged, also beyond the limit:
   * the key is then denied until time has repaid the debt. A cost of 0 cancels the charge. If a request is never settled, its
   * estimate stays charged.
   *
   * The first settlement or refund of a charge counts. A further one changes nothing, so it can be retried after an error.
   * Returns what a request of cost 0 would get now. Returns `verdict` itself if nothing was charged, because the request was
   * rejected or the store failed. Throws a `TidegateError`: `unknown_charge` if it is too late.
   */
  settle(verdict: Verdict, actual: { cost: number; now?: number | undefined }): Promise<Verdict> {
    const cost = () => {
      only(Object(actual), "", PART_OPTIONS);
      return whole("cost", actual?.cost);
    };
    return this.#settle("settle", verdict, cost, actual?.now);
  }

  /**
   * Gives back the slots of a request that has ended, if its policy has a concurrency limit. What it was charged stays charged:
   *
   *     const verdict = await tidegate.check(request);
   *     if (verdict.response) return verdict.response;
   *     try {
   *       return verdict.onto(await app(request));
   *     } finally {
   *       await tidegate.release(verdict);
   *     }
   *
   * `settle` and `refund` give them back, too. A request that is never released holds its slots for their lifetime.
   * Otherwise it is like `settle`: it throws `unknown_charge` if the lifetime is over.
   */
  release(verdict: Verdict, options?: { now?: number | undefined }): Promise<Verdict> {
    const cost = () => {
      only(options ?? {}, "", NOW_OPTIONS);
      return WHAT_WAS_CHARGED;
    };
    return this.#settle("release", verdict, cost, options?.now);
  }

  /**
   * Refunds the part `cost` of what a request was charged: by default all that was charged under a token, otherwise 1. Does
   * nothing if nothing was charged.
   *
   * A request that was charged under a token is settled to the rest, so it is refunded once, also if its verdict is `replayed`.
   */
  async refund(verdict: Verdict, part: { cost?: number | undefined; now?: number | undefined } = {}): Promise<void> {
    const { key, keys = key, status, charge } = verdict;
    if (keys === undefined || status !== "allowed" || charge?.cost === 0) return;
    await this.#told("refund", () => {
      only(part, "", PART_OPTIONS);
      const [units, instant] = [whole("cost", part["cost"] ?? charge?.cost ?? 1), whole("now", part["now"] ?? Date.now())];
      const asked = charge
        ? { ...ask(SETTLE, instant), token: charge.token, cost: Math.max(charge.cost - units, 0) }
        : { ...ask(REFUND, instant), cost: units, extra: verdict.decidedAtMs };
      return this.#decisionOf({ ...asked, counted: keys });
    });
  }

  /** Resets the counts of a key, or of the key of each dimension. Those of a request are `Verdict.key` or `Verdict.keys`. */
  async reset(keys: string | Keys): Promise<void> {
    await this.#told("reset", () => this.#decisionOf({ ...ask(RESET, 0), counted: keys }));
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
    await this.#told("block", () => {
      only(options, "", NOW_OPTIONS);
      return this.#decisionOf({ ...ask(BLOCK, whole("now", options["now"] ?? Date.now())), counted: keys, extra: whole("ms", ms) });
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

  /** Reports an error of a middleware. */
  [TELL](error: TidegateError): void {
    this.#tell("check", error, false);
  }

  /** Decides like `limit` at once, if the store is in memory. */
  protected decideNow(key: string | Keys, options: LimitOptions | undefined): Verdict {
    let asked: Question | undefined;
    try {
      asked = this.#named(key, options, this.#plain);
      this.#address(asked);
      timed(asked);
      this.#runner.answer(asked);
      return this.#verdict(undefined, asked);
    } catch (thrown) {
      return this.#undecided(CHECK, undefined, asked, thrown);
    }
  }

  /** Called after each decision that was made at `now`. */
  protected decided?(now: number): void;

  /** Tells of what the application should change, which is no error of a request. */
  protected warn(message: string): void {
    const error = new TidegateError("misconfigured", message);
    this.#log.failed({ operation: "check", kind: error.kind, message, failedOpen: false }, error, "warning");
  }

  /** @internal Decides like `limit` if that needs no call, because of a loan or a denial. Otherwise nothing has happened. */
  [KNOWN](key: string | Keys, options: LimitOptions): Verdict | undefined {
    try {
      const asked = this.#named(key, options);
      this.#address(asked);
      timed(asked);
      return this.#runner.answer(asked) ? this.#verdict(undefined, asked) : undefined;
    } catch {
      return undefined;
    }
  }

  /** The question about a key. `plain` may be it, if there are no options. */
  #named(key: string | Keys, options: LimitOptions | undefined, plain?: Question): Question {
    // An empty text would be one count for all whose name is missing.
    if (!key) throw invalid("key", `${key === "" ? "empty" : "missing"}; write who is counted, such as "user:42"`);
    const isPlain = options === undefined && !this.holdsSlots;
    const asked = isPlain ? (plain ?? ask(CHECK, 0)) : read(options ?? {}, CHECK, this.holdsSlots).asked;
    if (isPlain) asked.isTimed = false;
    asked.counted = typeof key === "object" ? own(key) : key;
    return asked;
  }

  /** Decides on a request with its sender's keys. */
  #check(request: Request, options: Chosen<CheckOptions>, kind: typeof CHECK | typeof PEEK): Promise<Verdict> {
    const mistake = notRequest(request);
    if (mistake) return Promise.reject(mistake);
    let asked: Question | undefined;
    const failed = (thrown: unknown) => this.#undecided(kind, request, asked, thrown);
    const decide = (options: unknown): Promise<Verdict> => {
      const given = read(options, kind, this.holdsSlots);
      const question = (asked = given.asked);
      const decideOn = (counted: string | Keys) => {
        question.counted = counted;
        return this.#decide(request, question);
      };
      const counted = this.#counted(request, given);
      return counted instanceof Promise ? counted.then(decideOn).catch(failed) : decideOn(counted);
    };
    // What is known is not waited for.
    try {
      return isPromised(options) ? chosen(options).then(decide).catch(failed) : decide(options);
    } catch (thrown) {
      return Promise.resolve(failed(thrown));
    }
  }

  #decide(request: Request | undefined, asked: Question): Promise<Verdict> {
    try {
      this.#address(asked);
      timed(asked);
      if (this.#runner.answer(asked)) return Promise.resolve(this.#verdict(request, asked));
    } catch (thrown) {
      return Promise.resolve(this.#undecided(asked.kind, request, asked, thrown));
    }
    return new Promise((resolve) => {
      this.#runner.run!(
        asked,
        () => resolve(this.#verdict(request, asked)),
        (thrown) => resolve(this.#undecided(asked.kind, request, asked, thrown)),
      );
    });
  }

  /** The verdict with the decision that the store has left. */
  #verdict(request: Request | undefined, asked: Question): Verdict {
    const { decision } = this.#core;
    this.#answered(asked.kind === PEEK ? "peek" : "check", decision);
    return this.#judged(request, new Verdict(this.#core, decision, asked.counted, chargeOf(asked)));
  }

  #undecided(kind: Question["kind"], request: Request | undefined, asked: Question | undefined, thrown: unknown): Verdict {
    const error = TidegateError.from(thrown);
    const verdict = new Verdict(this.#core.undecided(error.kind, this.#options.failsOpen), undefined, asked?.counted, asked && chargeOf(asked), error);
    this.#tell(kind === PEEK ? "peek" : "check", error, verdict.failedOpen);
    return this.#judged(request, verdict);
  }

  /** Tells the application of a verdict. */
  #judged(request: Request | undefined, verdict: Verdict): Verdict {
    if (this.decided && !verdict.error) quietly(() => this.decided?.(verdict.decidedAtMs));
    const { onVerdict } = this.#options;
    if (onVerdict) quietly(() => onVerdict(verdict, request));
    return verdict;
  }

  #settle(operation: "settle" | "release", verdict: Verdict, cost: () => number, now: unknown = Date.now()): Promise<Verdict> {
    return this.#told(operation, async () => {
      const [units, instant] = [cost(), whole("now", now)];
      const { key, keys = key, status, failedOpen, charge } = verdict;
      const holdsNothing = operation === "release" && (!charge || charge.cost === 0);
      if (keys === undefined || (status !== "allowed" && !failedOpen) || holdsNothing) return verdict;
      if (!charge) throw invalid("verdict", "its check had no estimate; write check(request, { estimate })");
      try {
        const { token } = charge;
        const decision = await this.#decisionOf({ ...ask(SETTLE, instant), counted: keys, token, cost: units });
        return new Verdict(this.#core, decision, keys, charge);
      } catch (thrown) {
        const error = TidegateError.from(thrown);
        // A check that failed may have been charged or not.
        if (failedOpen && error.kind === "unknown_charge") return verdict;
        throw error;
      }
    });
  }

  /** Asks a question, and returns the decision. */
  async #decisionOf(asked: Question): Promise<Decision> {
    this.#address(asked);
    if (this.#runner.answer(asked)) return this.#core.decision;
    return new Promise((resolve, reject) => this.#runner.run!(asked, () => resolve(this.#core.decision), reject));
  }

  /** The keys of a request. Quotas without a dimension count by `key`, or by the sender. */
  #counted(request: Request, { key, keys, peer }: Read): string | Keys | Promise<string | Keys> {
    const names = this.#core.dimensions;
    if (keys === undefined && names.length === 1) return key ?? this.#sender(request, peer);
    if (!names.includes("") || Object.hasOwn(keys ?? {}, "")) {
      if (key !== undefined) throw invalid("key", `no quota counts by it; write ${written(names)}`);
      return keys ?? {};
    }
    const sender = key ?? this.#sender(request, peer);
    return typeof sender === "string" ? { ...keys, "": sender } : sender.then((sender) => ({ ...keys, "": sender }));
  }

  /** Writes the key of each dimension of the policy into a question. */
  #address(asked: Question): void {
    this.assertReady();
    const names = this.#core.dimensions;
    const keys = asked.counted;
    if (typeof keys !== "object") {
      asked.key = text("key", keys);
      if (names.length > 1) throw invalid("keys", `missing; write ${written(names)}`);
      return;
    }
    const others = names.map((name) => {
      const place = `keys.${name}`;
      if (!Object.hasOwn(keys, name)) throw invalid(place, `missing; write ${written(names)}`);
      return text(place, keys[name]);
    });
    asked.key = others.pop()!;
    asked.others = others;
  }

  /** Runs a call, and reports its error before it throws it. */
  async #told<T>(operation: Operation, run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.#tell(operation, error, false);
      throw error;
    }
  }

  /** Reports an error to `onError`, or else on the console. */
  #tell(operation: Operation, error: TidegateError, failedOpen: boolean): void {
    const { kind, message } = error;
    const event = { operation, kind, message, failedOpen };
    if (isStoreFailure(error)) {
      const health = this.#health;
      health.failed(error);
      const effect = this.#options.failsOpen ? "Requests pass uncounted" : "Requests are refused";
      return this.#log.changed({ ...event, ...(health.change && { health: health.change.health }) }, health, `the store does not answer: ${message}. ${effect} until it does`);
    }
    this.#log.failed(event, error, operation === "identify" ? operation : undefined);
  }

  /** Reports that the store is back, if it was down. What a borrower or a deny cache decides says nothing about it. */
  #answered(operation: Operation, decision: Decision): void {
    const health = this.#health;
    if (!health.isDown || decision[ORIGIN] !== FROM_STORE) return;
    health.answered();
    const { change } = health;
    if (change?.health !== "up") return;
    const line = isBack("the store", change);
    this.#log.changed({ operation, kind: change.kind, message: line, failedOpen: false, health: "up" }, health, line);
  }

  #sender(request: Request | undefined, peer: string | undefined): string | Promise<string> {
    if (!request) throw invalid("keys", `missing; write ${written(this.#core.dimensions)}`);
    return this.#options.identify ? this.#identified(request, peer) : this.#keyOf(request, peer, {});
  }

  /** The key of who the application says has sent a request. */
  async #identified(request: Request, peer: string | undefined): Promise<string> {
    const { identify, rejectsUnidentified } = this.#options;
    let sender: Identity = {};
    try {
      const identity = await identify!(request);
      sender = { subject: named("subject", identity), apiKey: named("apiKey", identity) };
    } catch (cause) {
      const error = invalid("identify", "threw, or returned no well-formed text; return undefined if nobody is known", { cause });
      if (rejectsUnidentified) throw error;
      this.#tell("identify", error, false);
    }
    return this.#keyOf(request, peer, sender);
  }

  #keyOf(request: Request, peer: string | undefined, sender: Identity): string {
    // The second field counts only if the first is absent.
    const told = (name: string | undefined) => (name && request.headers.get(name)) || undefined;
    const first = told(this.#core.fields[0]);
    const second = first ? undefined : told(this.#core.fields[1]);
    const key = this.#core.key(first, second, typeof peer === "string" ? peer : undefined, sender);
    if (key === "ip:unknown" && (peer as unknown) === null && !this.#core.fields.length) {
      const message = `peer: ${this.#options.platform} needs the address of the connection; write limit(tidegate, { peer }) or { check: () => ({ peer }) }`;
      throw new TidegateError("misconfigured", message, "peer");
    }
    if (key === "ip:unknown") {
      const where = this.#core.fields.length ? `tells it in ${this.#core.fields.join(" or ")}` : "needs it in `peer`";
      const message = `no client address: ${this.#options.platform} ${where}; all such requests count as ${key}`;
      this.#tell("identify", invalid("request", message), false);
    }
    return key;
  }
}

/** A check's options, and the question that they make. */
interface Read {
  key: string | undefined;
  keys: Keys | undefined;
  peer: string | undefined;
  asked: Question;
}

function read(options: unknown, kind: typeof CHECK | typeof PEEK, holdsSlots: boolean): Read {
  try {
    only(options, "", CHECK_OPTIONS);
    const { key, keys, peer, now, cost, estimate, idempotency, settleWithinMs = SETTLE_WITHIN_MS }: CheckOptions = options;
    if (estimate !== undefined && (cost !== undefined || idempotency !== undefined)) {
      throw invalid("estimate", "it replaces cost and idempotency; write check(request, { estimate })");
    }
    const asked = ask(kind, now === undefined ? 0 : whole("now", now));
    asked.isTimed = now !== undefined;
    if (cost !== undefined) asked.cost = whole("cost", cost);
    if (estimate !== undefined) {
      [asked.cost, asked.extra] = [some("estimate", estimate), some("settleWithinMs", settleWithinMs)];
    } else if (idempotency) {
      [asked.token, asked.extra] = [token(idempotency.token), whole("idempotency.ttlMs", idempotency.ttlMs)];
    }
    // The server makes the token of an estimate: a client that chooses it could repeat a request for free.
    if (estimate !== undefined || (holdsSlots && !idempotency)) asked.token = crypto.randomUUID();
    return { key: key === undefined ? undefined : text("key", key), keys: keys === undefined ? undefined : own(keys), peer, asked };
  } catch (cause) {
    throw unreadable(cause);
  }
}

function chargeOf({ token, cost }: Question): Charge | undefined {
  return token === undefined ? undefined : { token, cost };
}

function unreadable(cause: unknown): TidegateError {
  return cause instanceof TidegateError ? cause : invalid("options", "reading them threw", { cause });
}

/** A copy of an object's own fields. What it inherits is not the caller's. */
function own(keys: unknown): Keys {
  if (typeof keys !== "object" || keys === null) throw invalid("keys", `not an object; write ${written(["user", "tenant"])}`);
  return Object.fromEntries(Object.entries(keys));
}

/** Keys of these dimensions, as a caller would write them. */
function written(names: readonly string[]): string {
  return `keys: { ${names.map((name) => name || '""').join(", ")} }`;
}

/** A whole number that is not zero. */
function some(field: string, value: unknown): number {
  const number = whole(field, value);
  if (number === 0) throw invalid(field, "0 is out of range; write at least 1");
  return number;
}

/** A token that would make every request a retry of the first is none. */
function token(value: unknown): string {
  const token = text("idempotency.token", value);
  if (token.trim() === "") throw invalid("idempotency.token", "empty; write one that is unique to the request, or leave out idempotency");
  return token;
}

function named(field: keyof Identity, identity: Identity | undefined): string | undefined {
  const name = identity?.[field] ?? undefined;
  return name === undefined ? undefined : text(field, name);
}
