import { calledStore } from "../../called_store.js";
import { ApartCalls } from "../../apart_calls.js";
import type { Runner } from "../../calls.js";
import type { Rule } from "../../core/algorithms/algorithm.js";
import { checkWindow, FIXED_WINDOW } from "../../core/algorithms/make_algorithm.js";
import { NATIVE, supportsCost, supportsDenials, tooMany } from "../../core/capabilities.js";
import { withoutCounts } from "../../core/decide.js";
import { type ReadyQuota, solePolicy } from "../../core/policy.js";
import { ALLOWED, DENIED, FROM_STORE, UNKNOWN } from "../../decision_numbers.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Core, ExactCore, type StoreCore } from "../../limiter_core.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { CALLED_PARTS, calledPartsOf, type CalledPartsOptions, PartsLimiter } from "../../parts_limiter.js";
import type { Question } from "../../question.js";
import { RemoteLimiter } from "../../remote_limiter.js";
import { type Call, said, type Store } from "../../store.js";

export * from "../../store_exports.js";

/** A binding of Cloudflare's Rate Limiting API. */
export interface Binding {
  limit(options: { key: string }): Promise<{ success: boolean }>;
}

/** The option of a limiter on the binding. */
interface BindingOptions {
  /** `env.LIMITER`, the binding. If it is missing, the first check reports it. */
  binding: Binding | undefined;
}

/** The options of a limiter on the Rate Limiting binding. */
export interface RateLimitOptions extends Omit<Options, "platform">, BindingOptions {
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
}

/** The options of a `RateLimiter` on the Rate Limiting binding. */
export interface RateLimiterOptions extends CalledPartsOptions<"fixed_window">, BindingOptions {}

/** How long a decision may take, unless the options say it. */
const DEADLINE_MS = 250;

/** The periods that the platform offers. */
const PERIODS_MS = [10_000, 60_000];

const RIGHT = "the binding counts one fixed window; write one quota with its numbers, such as { fixedWindow: { limit: 100, windowMs: 60000 } }";

/**
 * A limiter on Cloudflare's Rate Limiting binding, which counts at each location for itself and costs nothing. The policy has one
 * fixed window with the limit and the period of the binding, of 10 or 60 seconds. A request costs 1, and a verdict does not
 * know what remains.
 *
 *     // wrangler.jsonc: "ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]
 *     const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60_000 } }] };
 *     const tidegate = new Tidegate({ binding: env.LIMITER, failMode: "open", policy });
 */
export class Tidegate extends RemoteLimiter {
  constructor(options: RateLimitOptions) {
    const fields = new Fields(options, "", [...COMMON, "binding"]);
    const ready = { ...common(fields, DEADLINE_MS, "cloudflare"), ...bound(fields) };
    const nameIn = (core: StoreCore) => (question: Question) => {
      core.verify(question);
      return core.storage(question).rows[0]!;
    };
    super(ready, () => new Core(ready, NATIVE, ruleOf), (core) => counted(ready, core, nameIn(core)));
  }
}

/**
 * The same limiter in less code, for an application that bundles it: its quota is `fixedWindow` of `@tidegate/edge/parts`. It decides, and does
 * nothing else. Both count together, if their policies are the same.
 *
 *     const policy = { name: "api", quotas: [fixedWindow(100, "60 s")] };
 *     const limiter = new RateLimiter({ binding: env.LIMITER, failMode: "open", policy });
 */
export class RateLimiter extends PartsLimiter {
  constructor(options: RateLimiterOptions) {
    const fields = new Fields(options, "", [...CALLED_PARTS, "binding"]);
    const ready = { ...calledPartsOf(fields, DEADLINE_MS), ...bound(fields) };
    super(ready, () => {
      const core = new ExactCore(solePolicy(ready, ruleOf, (count) => tooMany(NATIVE, count)), NATIVE);
      supportsDenials(NATIVE, core.policy);
      const nameOf = ({ policy, cost, key }: Question) => {
        supportsCost(NATIVE, cost);
        return `tg1:${policy.id}:${core.keyOf(key)}`;
      };
      return calledStore(ready, core, counted(ready, core, nameOf));
    });
  }
}

/** Checks the binding. */
function bound(fields: Fields) {
  const binding = fields.get("binding") as Binding | undefined;
  const right = `"ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]`;
  if (binding !== undefined && typeof binding.limit !== "function") {
    throw invalid("binding", `not a Rate Limiting binding; in wrangler.jsonc, write ${right}`);
  }
  return { binding, broken: binding === undefined ? missing("binding", `in wrangler.jsonc, write ${right}`) : undefined };
}

/** The window of a policy, without an algorithm: the binding counts. It has numbers of its own, of which the policy has a copy. */
function ruleOf(ready: ReadyQuota, path: string): Rule {
  if (ready.algorithm !== FIXED_WINDOW) throw ["unsupported", `${path.slice(0, -1)}: ${RIGHT}`];
  const { amount, span: unit } = ready;
  checkWindow(path + ready.place, amount, unit);
  if (!PERIODS_MS.includes(unit)) {
    throw invalid(`${path}${ready.place}windowMs`, `the Rate Limiting binding cannot count ${unit} ms; write 10000 or 60000, or count in Durable Objects`);
  }
  const numbers: Partial<Rule> = { name: "fixed_window", code: "fw", shape: `fw${unit}`, amount, unit, last: 0, limit: amount, window: unit, retention: unit };
  return numbers as Rule;
}

/** Runs calls of the binding. `nameOf` is what it counts a question by. */
function counted({ binding, deadlineMs }: { binding: Binding | undefined; deadlineMs: number }, core: ExactCore, nameOf: (question: Question) => string): Runner {
  return new ApartCalls(new Counter(core, binding!, nameOf), deadlineMs);
}

/** Asks the binding. */
class Counter implements Store {
  readonly name = "Rate Limiting binding";
  readonly #core: ExactCore;
  readonly #binding: Binding;
  readonly #nameOf: (question: Question) => string;

  constructor(core: ExactCore, binding: Binding, nameOf: (question: Question) => string) {
    this.#core = core;
    this.#binding = binding;
    this.#nameOf = nameOf;
  }

  send({ question }: Call): Promise<boolean> {
    return this.#count(this.#nameOf(question));
  }

  answered({ question: { policy, now } }: Call, isAdmitted: unknown): undefined {
    this.#core.decision = withoutCounts(policy, isAdmitted ? ALLOWED : DENIED, 0, UNKNOWN, now, FROM_STORE);
  }

  threw(_call: Call, thrown: unknown): never {
    const why = said(thrown);
    // A client can cause the first two, with enough requests or an odd key.
    const kind = /429|too many/i.test(why) ? "contended" : /invalid|bad rate limit|must be|TypeError|RangeError/i.test(why) ? "refused" : "unavailable";
    throw [kind, `${this.name}: call failed: ${why}; the request may have been counted`];
  }

  async #count(key: string): Promise<boolean> {
    return (await this.#binding.limit({ key })).success;
  }
}
