import { quietly } from "./callback.js";
import { type Chosen, chosen, isPromised } from "./check_options.js";
import type { Decision } from "./core/decide.js";
import type { Keys } from "./core/key.js";
import { invalid, TidegateError } from "./error.js";
import { FrontEnd, notRequest } from "./front_end.js";
import { LAYER, type Layer, written } from "./layer.js";
import type { Policy, ReadyPolicy } from "./core/policy.js";
import { type Sent, undecided } from "./core/response.js";
import type { ExactCore } from "./limiter_core.js";
import type { FailureLog } from "./log.js";
import type { ErrorEvent } from "./options.js";
import { ask, CHECK, PEEK, type Question } from "./question.js";
import { type Charge, type SharedParts, Verdict } from "./verdict.js";

/** How any limiter decides on one request. A request with an invalid value is rejected: the verdict's response is a 400. */
export interface BaseCheckOptions {
  /** Count this key instead of the request's sender: any well-formed text, such as `tenant:42`. */
  key?: string | undefined;
  /** The key of each dimension of the policy, as `{ user: "user:7", tenant: "tenant:42" }`. Quotas without `by` count by `key`. */
  keys?: Keys | undefined;
  /** The client's address from the host's own API or socket, for the platforms `direct` and `fastly`. */
  peer?: string | undefined;
  /** The cost of the request, a whole number. Default: 1. */
  cost?: number | undefined;
  /**
   * The time of the request, in milliseconds since the epoch, if the caller's clock decides. Default: `Date.now()` when the key is known,
   * so after `identify`.
   */
  now?: number | undefined;
}

/** What a limiter needs to answer with its verdicts. */
export interface Answering extends ReadyPolicy {
  /** What the client of a decision is sent. */
  sentBy: (policy: Policy, decision: Decision) => Sent;
  onError: ((event: ErrorEvent) => unknown) | undefined;
  onVerdict: ((verdict: Verdict, request: Request | undefined) => unknown) | undefined;
  /** Why the limiter cannot decide, for example because a variable is missing. */
  broken?: TidegateError | undefined;
  failsOpen: boolean;
  /** Whether a response tells that the request passed because the store failed. */
  failedOpenHeader: boolean;
}

/** A check's options, and the question that they make. */
export interface ReadCheck {
  key: string | undefined;
  keys: Keys | undefined;
  peer: string | null | undefined;
  asked: Question;
}

/** The kinds of questions about a request. */
export type CheckKind = typeof CHECK | typeof PEEK;

/** What a limiter consists of. */
export interface LimiterParts {
  core: ExactCore;
  /** What is asked. */
  layer: Layer;
  log: FailureLog;
}

/** What every limiter of one policy does: it decides. Make one and keep it, because its connections live in it. */
export abstract class BaseLimiter<Options extends BaseCheckOptions = BaseCheckOptions> extends FrontEnd {
  /** @internal What a gate asks. */
  declare readonly [LAYER]: Layer;
  declare protected readonly core: ExactCore;
  declare protected readonly log: FailureLog;
  readonly #options: Answering;
  /** What all verdicts tell. */
  readonly #told: SharedParts;
  /** The question about a key without options. Stores that answer at once keep no question, so this one serves for all. */
  readonly #plain: Question;

  /** `parts` throws what is wrong with the policy. */
  protected constructor(options: Answering, parts: () => LimiterParts) {
    super();
    this.#options = options;
    try {
      const { core, layer, log } = parts();
      this.core = core;
      this.log = log;
      this[LAYER] = layer;
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
    const { policy } = this.core;
    const { names, holdsSlots } = policy;
    this.#plain = ask(CHECK, policy, 0);
    this.#told = { sent: (decision) => options.sentBy(policy, decision), names, holdsSlots };
  }

  /**
   * Decides on a request, and charges it if every quota admits it.
   *
   * It rejects only for what is no `Request`. If the store fails (`unavailable` or `timeout`), the fail mode decides. After any other error, the request
   * is rejected, because a client could have caused the error. `verdict.error` says what went wrong.
   *
   * `options` may be a promise or a function, also an async one. If it throws, the request is rejected as invalid.
   */
  check(request: Request, options?: Chosen<Options>): Promise<Verdict> {
    return this.judge(request, options, CHECK);
  }

  /**
   * Decides like `check` about a key, or the key of each dimension, without a request:
   *
   *     const { allowed, retryAfterMs } = await tidegate.limit("user:42", { cost: 3 });
   */
  limit(key: string | Keys, options?: Omit<Options, "key" | "keys" | "peer">): Promise<Verdict> {
    return Promise.resolve(this.begin(key, options, false, (asked) => this.#decide(undefined, asked)));
  }

  /** Whether the policy has a concurrency limit, so that each admitted request holds a slot until it is released. */
  get holdsSlots(): boolean {
    return this.core.policy.holdsSlots;
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
  protected begin<T>(key: string | Keys, options: unknown, isAtOnce: boolean, decide: (asked: Question) => T): T | Verdict {
    let asked: Question | undefined;
    try {
      asked = this.#named(key, options, isAtOnce ? this.#plain : undefined);
      return decide(asked);
    } catch (thrown) {
      return this.#undecided(CHECK, undefined, asked, thrown);
    }
  }

  /** Decides on a request with its sender's keys. */
  protected async judge(request: Request, options: Chosen<Options> = {} as Options, kind: CheckKind): Promise<Verdict> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    let asked: Question | undefined;
    try {
      // What is known is not waited for.
      const given = this.read(isPromised(options) ? await chosen(options) : options, kind);
      const keys = this.#counted(request, given);
      asked = given.asked;
      asked.keys = keys instanceof Promise ? await keys : keys;
    } catch (thrown) {
      return this.#undecided(kind, request, asked, thrown);
    }
    return this.#decide(request, asked);
  }

  /** The key that a request counts against. */
  protected abstract senderOf(request: Request, peer: string | null | undefined): string | Promise<string>;

  /** Reads the options of a check. */
  protected abstract read(options: unknown, kind: CheckKind): ReadCheck;

  protected verdictOf(request: Request | undefined, asked: Question, decision: Decision): Verdict {
    const verdict = new Verdict(this.#told, decision, asked.keys, chargeOf(asked));
    if (this.log.hasNews) this.tell(asked.kind === PEEK ? "peek" : "check", undefined, false);
    return this.#judged(request, verdict);
  }

  /** The question about a key. `plain` may be it, if there are no options. */
  #named(key: string | Keys, options: unknown, plain?: Question): Question {
    // An empty text would be one count for all whose name is missing.
    if (!key) throw invalid("key", `${key === "" ? "empty" : "missing"}; write who is counted, such as "user:42"`);
    const isPlain = options === undefined && !this.#told.holdsSlots;
    const asked = isPlain ? (plain ?? ask(CHECK, this.core.policy, 0)) : this.read(options ?? {}, CHECK).asked;
    if (isPlain) asked.isTimed = false;
    // Of its own fields: what it inherits is not the caller's.
    asked.keys = typeof key === "object" ? { ...key } : key;
    return asked;
  }

  #decide(request: Request | undefined, asked: Question): Promise<Verdict> {
    return this[LAYER].ask(asked).then(
      (decision) => this.verdictOf(request, asked, decision),
      (thrown) => this.#undecided(asked.kind, request, asked, thrown),
    );
  }

  #undecided(kind: Question["kind"], request: Request | undefined, asked: Question | undefined, thrown: unknown): Verdict {
    const error = TidegateError.from(thrown);
    const sent = undecided(error.kind, this.#options.failsOpen, this.#options.failedOpenHeader);
    const outcome = sent.status === 0 ? "failed_open" : "failed_closed";
    const verdict = new Verdict({ ...this.#told, outcome, sent, error }, undefined, asked?.keys, asked && chargeOf(asked));
    this.tell(kind === PEEK ? "peek" : "check", error, verdict.failedOpen);
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
    const names = this.core.dimensions;
    if (keys === undefined && names.length === 1) return key ?? this.senderOf(request, peer);
    if (!names.includes("") || Object.hasOwn(keys ?? {}, "")) {
      if (key !== undefined) throw invalid("key", `no quota counts by it; write ${written(this.core.policy.dimensions)}`);
      return keys ?? {};
    }
    const sender = key ?? this.senderOf(request, peer);
    return typeof sender === "string" ? { ...keys, "": sender } : sender.then((sender) => ({ ...keys, "": sender }));
  }

  /** Tells that a request is counted by its address, or by none. */
  protected readonly warnOf = (error: TidegateError): void => {
    const { kind, message } = error;
    this.log.failed({ operation: "identify", kind, message, failedOpen: false }, error, "identify");
  };
}

/** The charge of a check, if it can be settled. */
function chargeOf({ token, cost }: Question): Charge | undefined {
  return token === undefined ? undefined : { token, cost };
}
