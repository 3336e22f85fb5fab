import { type Chosen, costOf, keysOf, optionsReader, peerOf, positive, uniqueToken } from "./check_options.js";
import { type Answering, type BaseCheckOptions, BaseLimiter, type CheckKind, type LimiterParts, type ReadCheck } from "./base_limiter.js";
import { ClientAddress } from "./client_address.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import type { Keys } from "./core/key.js";
import { type Look, sent } from "./core/response_look.js";
import { balanceOf } from "./core/valid_question.js";
import { invalid } from "./error.js";
import { text, whole } from "./fields.js";
import { notRequest, told } from "./front_end.js";
import type { GrantOptions } from "./granting.js";
import { LAYER } from "./layer.js";
import type { Identity, Options } from "./options.js";
import { ask, BLOCK, GRANT, PEEK, type Question, REFUND, RESET } from "./question.js";
import { readNow, readPart, SETTLE_WITHIN_MS, Settlement, type Settling, standing } from "./settlement.js";
import { Verdict } from "./verdict.js";

/** The longest time of a timer, some 25 days. A longer one ends at once. */
const TIMEOUT_MS_MAX = 2_147_483_647;

/** How to decide on one request. A request with an invalid value is rejected: the verdict's response is a 400. */
export interface CheckOptions extends BaseCheckOptions {
  /**
   * The estimated cost of a request whose cost is known only afterwards: a whole number of at least 1, in place of `cost`.
   * Settle it to the actual cost with `settle`. The package makes the token of the charge.
   */
  estimate?: number | undefined;
  /** How long an `estimate` can be settled, in milliseconds. Default: 600,000, ten minutes. */
  settleWithinMs?: number | undefined;
  /**
   * Charges all checks with this token once, for `ttlMs` milliseconds. The others are `replayed`; with another cost, the
   * error is `token_reused`. A client that chooses its own token can repeat a request that was admitted for free, so use it
   * only for operations that do nothing the second time.
   */
  idempotency?: { token: string; ttlMs: number } | undefined;
}

/** The options of a decision about a key without a request. */
export type LimitOptions = Omit<CheckOptions, "key" | "keys" | "peer">;

const readCheck = /* @__PURE__ */ optionsReader({
  key: text,
  keys: keysOf,
  peer: peerOf,
  cost: whole,
  now: whole,
  estimate: positive,
  settleWithinMs: positive,
  idempotency: (name: string, value: unknown) => {
    if (!value) return undefined;
    const { token, ttlMs } = value as NonNullable<CheckOptions["idempotency"]>;
    return { token: uniqueToken(`${name}.token`, token), ttlMs: whole(`${name}.ttlMs`, ttlMs) };
  },
});

/** The options that this class reads, with their defaults filled in. */
export interface Ready extends Omit<Answering, "sentBy"> {
  look: Look;
  platform: string;
  ipv6Prefix: number;
  trustTrueClientIp: boolean;
  identify: Options["identify"];
  rejectsUnidentified: boolean;
}

/** A limiter of one policy for any `Request`. Make one and keep it: its connections and its deny cache live in it. */
export abstract class Limiter extends BaseLimiter<CheckOptions> implements Settling {
  readonly #options: Ready;
  readonly #address: ClientAddress;
  readonly #settlement = new Settlement({
    layerAt: () => this[LAYER],
    // No store remembers a charge of nothing.
    heldBy: ({ key, keys, charge }) => (charge!.cost === 0 ? [] : [{ store: 0, policy: this.core.policy, keys: (keys ?? key)!, cost: charge!.cost }]),
    look: () => this.#options.look,
    told: (operation, run) => told(this, operation, run),
  });

  protected constructor(options: Ready, parts: () => LimiterParts) {
    const { platform, ipv6Prefix, trustTrueClientIp } = options;
    const address = new ClientAddress(platform, ipv6Prefix, trustTrueClientIp);
    super({ ...options, sentBy: (policy, decision) => sent(policy, decision, options.look) }, parts);
    this.#options = options;
    this.#address = address;
  }

  /** What the store supports, and how exact it is. */
  get capabilities(): Capabilities {
    return this.core.capabilities;
  }

  /** Decides like `check`, but charges nothing. */
  peek(request: Request, options?: Chosen<CheckOptions>): Promise<Verdict> {
    return this.judge(request, options, PEEK);
  }

  settle(verdict: Verdict, actual: { cost: number; now?: number | undefined }): Promise<Verdict> {
    return this.#settlement.settle(verdict, actual);
  }

  release(verdict: Verdict, options?: { now?: number | undefined }): Promise<Verdict> {
    return this.#settlement.release(verdict, options);
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

  async refund(verdict: Verdict, part: { cost?: number | undefined; now?: number | undefined } = {}): Promise<void> {
    const { key, keys, outcome, charge, decidedAtMs = 0 } = verdict;
    if (charge || outcome !== "allowed") return this.#settlement.refund(verdict, part);
    await told(this, "refund", () => {
      const { cost = 1, now = Date.now() } = readPart(part);
      return this.#asks(REFUND, now, { keys: keys ?? key, cost, extra: decidedAtMs });
    });
  }

  /** Resets the counts of a key, or of the key of each dimension. Those of a request are `Verdict.key` or `Verdict.keys`. */
  async reset(keys: string | Keys): Promise<void> {
    await told(this, "reset", () => this.#asks(RESET, 0, { keys }));
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
    await told(this, "block", () => {
      const { now = Date.now() } = readNow(options);
      return this.#asks(BLOCK, now, { keys, extra: whole("ms", ms) });
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
    return told(this, "grant", async () => {
      const { policy } = this.core;
      const asked = balanceOf(policy).parts.ask({ ...ask(GRANT, policy, Date.now()), keys }, units, options);
      return new Verdict(standing(asked, await this[LAYER].ask(asked), this.#options.look));
    });
  }

  #asks(kind: Question["kind"], now: number, more: Partial<Question>): Promise<Decision> {
    return this[LAYER].ask({ ...ask(kind, this.core.policy, now), ...more });
  }

  /** The key that a request counts against: a verified subject, an API key, the client's address, or `ip:unknown`. */
  async identify(request: Request, peer?: string): Promise<string> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    return this.senderOf(request, peer);
  }

  protected read(options: unknown, kind: CheckKind): ReadCheck {
    const { policy } = this.core;
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

  protected senderOf(request: Request, peer: string | null | undefined): string | Promise<string> {
    return this.#options.identify ? this.#identified(request, peer) : this.#address.keyOf(request, peer, {}, this.warnOf);
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
      this.warnOf(error);
    }
    return this.#address.keyOf(request, peer, sender, this.warnOf);
  }
}

function named(field: keyof Identity, identity: Identity | undefined): string | undefined {
  const name = identity?.[field] ?? undefined;
  return name === undefined ? undefined : text(field, name);
}
