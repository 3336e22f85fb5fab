import { AsyncLocalStorage } from "node:async_hooks";
import { invalid, isStoreFailure, TidegateError } from "../error.js";
import { Fields } from "../fields.js";
import type { Limiter } from "../limiter.js";
import type { QuotaStatus, Verdict } from "../verdict.js";

/** What the store reads of the options of express-rate-limit. */
export interface StoreContext {
  windowMs: number;
  handler?: unknown;
  /** A number, or a function that chooses it for each request. */
  limit: unknown;
  passOnStoreError?: boolean | undefined;
}

/** What express-rate-limit is told about a key. */
export interface ClientInfo {
  totalHits: number;
  resetTime: Date;
}

/** What the store's handler needs of Express's `Response`. */
export interface RefusedResponse {
  readonly writableEnded: boolean;
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  removeHeader(name: string): unknown;
  end(body: string): unknown;
  send(body: any): unknown;
}

/** What it needs of the options of express-rate-limit. */
export interface RefusedOptions {
  statusCode: number;
  message: any;
}

/** How a store names its keys. */
export interface TidegateStoreOptions {
  /** Put before each key. Stores whose middlewares see the same request need different prefixes. Default: none. */
  prefix?: string | undefined;
}

/** The fields that express-rate-limit sets. */
const TOLD = ["", "x-"].flatMap((start) => ["limit", "remaining", "reset"].map((end) => `${start}ratelimit-${end}`)).concat("ratelimit", "ratelimit-policy", "retry-after");

/** The most keys that `resetAll` knows. */
const KEYS_MAX = 100_000;

/** Any request, for `peek`, which is given its key. */
const ANY_REQUEST = "http://localhost";

/**
 * A store for express-rate-limit 8:
 *
 *     const tidegate = new Tidegate({ client, platform: "direct", failMode: "open", policy: { name: "api", quotas: ["100 / min"] } });
 *     const store = new TidegateStore(tidegate);
 *     app.use(rateLimit({ windowMs: 60_000, limit: 100, store, handler: store.handler }));
 *
 * The limiter decides, and the middleware is told a count that agrees with the decision: above its limit if the request is denied.
 * So one quota of the policy must have the middleware's `limit`, and its `windowMs` in whole seconds. Otherwise `init` rejects,
 * express-rate-limit logs that, and each request fails. A `limit` that is a function is not compared, and can only lower the
 * policy's limit.
 *
 * If the store fails, a limiter with `failMode: "open"` admits the request. With `closed`, `passOnStoreError` decides. That option lets
 * nothing else through: after an error that a client can cause, a request is denied. A request that is not let through gets a 503 or
 * another status that says what is wrong, from `handler`. Without it, `increment` throws an error with that `status`, which Express sends
 * as HTML, and logs for each request.
 *
 * A denied request is not charged. `skipFailedRequests` and `skipSuccessfulRequests` refund exactly what their request was charged.
 */
export class TidegateStore {
  /** Counts are shared with other stores of the same policy. */
  readonly localKeys = false;
  /** What is put before each key. */
  readonly prefix: string;
  readonly #tidegate: Limiter;
  /** The verdict on the request whose response is being made. express-rate-limit refunds a key, not a request. */
  readonly #current = new AsyncLocalStorage<{ verdict?: Verdict; isRefunded?: boolean }>();
  readonly #known = new KnownKeys();
  #limit: number | undefined;
  #windowMs = 0;
  #passes = false;
  /** Whether `handler` answers the requests that are not let through. */
  #answers = false;

  constructor(tidegate: Limiter, options: TidegateStoreOptions = {}) {
    if (typeof (tidegate as Partial<Limiter> | undefined)?.limit !== "function") {
      throw invalid("tidegate", "not a limiter; write new TidegateStore(tidegate)");
    }
    if (tidegate.holdsSlots) {
      throw invalid("policy", "a store cannot release the slots of a concurrency limit; use limit of @tidegate/edge/node");
    }
    this.#tidegate = tidegate;
    this.prefix = new Fields(options, "", ["prefix"]).text("prefix", "a text that begins each key") ?? "";
  }

  /** Compares the numbers of the middleware with the policy's. If the store is down or cannot peek, the first decision does. */
  async init({ windowMs, limit, handler, passOnStoreError = false }: StoreContext): Promise<void> {
    [this.#windowMs, this.#passes, this.#answers] = [windowMs, passOnStoreError, handler === this.handler];
    this.#limit = typeof limit === "number" ? limit : undefined;
    const verdict = await this.#peek("init");
    if (!verdict.error) this.#counted(verdict);
    else if (verdict.error.kind === "invalid") throw verdict.error;
  }

  /**
   * The `handler` for the options of express-rate-limit: it does what the default does, and answers also the requests on which the limiter
   * could not decide, with a 503.
   */
  readonly handler = async (request: any, response: RefusedResponse, _next: unknown, { statusCode, message }: RefusedOptions): Promise<void> => {
    const { error, http } = this.#current.getStore()?.verdict ?? {};
    if (!error || !http) {
      response.statusCode = statusCode;
      const body: unknown = typeof message === "function" ? await message(request, response) : message;
      if (!response.writableEnded) response.send(body);
      return;
    }
    // Nothing is known of the counts that the middleware has told.
    for (const name of TOLD) response.removeHeader(name);
    response.statusCode = http.status;
    for (const name in http.headers) response.setHeader(name, http.headers[name]!);
    response.end(http.body);
  };

  /** Decides on a request of this key. */
  async increment(key: string): Promise<ClientInfo> {
    const current: { verdict?: Verdict } = {};
    // The caller goes on in this context, and so do its listeners, which call `decrement`.
    this.#current.enterWith(current);
    const verdict = await this.#tidegate.limit(this.prefix + key);
    current.verdict = verdict;
    this.#known.add(key, this.#windowMs);
    if (verdict.failedOpen) return { totalHits: 1, resetTime: after(this.#windowMs) };
    try {
      if (verdict.error && this.#answers && !(this.#passes && isStoreFailure(verdict.error))) return { totalHits: this.#above(0), resetTime: after(this.#windowMs) };
      if (verdict.error) throw verdict.error;
      const { limit, remaining, resetAfterMs } = this.#counted(verdict);
      if (!verdict.allowed) return { totalHits: this.#above(limit), resetTime: after(verdict.retryAfterMs ?? this.#windowMs) };
      if (verdict.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
      return { totalHits: Math.max(limit - (remaining ?? 0), 1), resetTime: after(resetAfterMs ?? this.#windowMs) };
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      if (!this.#passes || isStoreFailure(error)) throw answered(error, verdict.http?.status ?? 500);
      return { totalHits: this.#above(0), resetTime: after(this.#windowMs) };
    }
  }

  /** Refunds the request whose response is being made, once. Does nothing if it was not charged. */
  async decrement(_key: string): Promise<void> {
    const current = this.#current.getStore();
    if (!current?.verdict) throw new TidegateError("unsupported", "decrement: only express-rate-limit can call it, while it handles a request");
    if (current.isRefunded) return;
    current.isRefunded = true;
    await this.#tidegate.refund(current.verdict);
  }

  /** Removes the counts of a key. */
  async resetKey(key: string): Promise<void> {
    await this.#tidegate.reset(this.prefix + key);
    this.#known.delete(key);
  }

  /**
   * Removes the counts of all keys that this process has counted in the last two windows. A store has no list of its keys, so those that only
   * other processes have counted remain. Rejects if there were more than 100,000.
   */
  async resetAll(): Promise<void> {
    const keys = this.#known.all();
    for (const key of keys) await this.resetKey(key);
  }

  /** What a key has used, without charging it. Undefined if it is unused, and this process has not counted it either. */
  async get(key: string): Promise<ClientInfo | undefined> {
    const verdict = await this.#peek(key);
    if (verdict.error) throw verdict.error;
    const { limit, remaining, resetAfterMs } = this.#counted(verdict);
    const totalHits = limit - (remaining ?? 0);
    return totalHits > 0 || this.#known.has(key) ? { totalHits, resetTime: after(resetAfterMs ?? this.#windowMs) } : undefined;
  }

  #peek(key: string): Promise<Verdict> {
    return this.#tidegate.peek(new Request(ANY_REQUEST), { key: this.prefix + key });
  }

  /** A count that the middleware denies. A function may choose any limit. */
  #above(limit: number): number {
    return this.#limit === undefined ? Number.MAX_SAFE_INTEGER : Math.max(limit, this.#limit) + 1;
  }

  /** The quota with the numbers of the middleware, or the one that decided if the middleware's limit is a function. */
  #counted(verdict: Verdict): QuotaStatus {
    const { quotas, binding } = verdict;
    if (this.#limit === undefined) return quotas[binding]!;
    const seconds = Math.ceil(this.#windowMs / 1_000);
    const told = [...(verdict.headers["ratelimit-policy"] ?? "").matchAll(/"([^"]+)";q=(\d+);w=(\d+)/g)];
    const [, name] = told.find(([, , q, w]) => Number(q) === this.#limit && Number(w) === seconds) ?? [];
    const quota = quotas.find((quota) => quota.name === name);
    if (quota) return quota;
    const [field, given] = told.some(([, , q]) => Number(q) === this.#limit) ? ["windowMs", this.#windowMs] : ["limit", this.#limit];
    const right = told.map(([, , q, w]) => `limit: ${q}, windowMs: ${Number(w) * 1_000}`).join(" or ");
    throw new TidegateError("misconfigured", `${field}: ${given} is not the policy's; write rateLimit({ ${right}, store })`, field);
  }
}

/** The same error for Express, which sends its status. In place of the stack, it logs a line, and sends it unless in production. */
function answered({ kind, message, field, cause }: TidegateError, status: number): TidegateError {
  const error = new TidegateError(kind, message, field, { cause });
  const line = `TidegateError: ${kind}`;
  Object.defineProperties(error, { status: { value: status }, stack: { value: line }, [Symbol.for("nodejs.util.inspect.custom")]: { value: () => line } });
  return error;
}

/** The keys that were counted in the last one or two spans of two windows, after which a count is over. */
class KnownKeys {
  #now = new Set<string>();
  #before = new Set<string>();
  #until = 0;
  /** Since when keys are left out, because there were too many. */
  #isCut = { now: false, before: false };

  add(key: string, windowMs: number): void {
    const now = Date.now();
    if (now >= this.#until) {
      const span = 2 * windowMs;
      const isOver = now >= this.#until + span;
      [this.#before, this.#now] = [isOver ? new Set() : this.#now, new Set()];
      this.#isCut = { now: false, before: !isOver && this.#isCut.now };
      this.#until = now + span;
    }
    if (this.#now.size < KEYS_MAX) this.#now.add(key);
    else if (!this.#now.has(key)) this.#isCut.now = true;
  }

  has(key: string): boolean {
    return this.#now.has(key) || this.#before.has(key);
  }

  delete(key: string): void {
    this.#now.delete(key);
    this.#before.delete(key);
  }

  all(): string[] {
    if (this.#isCut.now || this.#isCut.before) throw new TidegateError("unsupported", `resetAll: more than ${KEYS_MAX} keys; reset each with resetKey`);
    return [...new Set([...this.#now, ...this.#before])];
  }
}

function after(ms: number): Date {
  return new Date(Date.now() + ms);
}
