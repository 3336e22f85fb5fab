import type { Rule } from "../../core/algorithms/algorithm.js";
import { checkWindow, FIXED_WINDOW } from "../../core/algorithms/make_algorithm.js";
import { NATIVE } from "../../core/capabilities.js";
import type { ReadyQuota } from "../../core/policy.js";
import { ALLOWED, DENIED, FROM_STORE, UNKNOWN } from "../../decision_numbers.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Core, type StoreCore } from "../../limiter_core.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { RemoteLimiter } from "../../remote_limiter.js";
import { type Call, said, type Store } from "../../store.js";

export * from "../../store_exports.js";

/** A binding of Cloudflare's Rate Limiting API. */
export interface Binding {
  limit(options: { key: string }): Promise<{ success: boolean }>;
}

/** The options of a limiter on the Rate Limiting binding. */
export interface RateLimitOptions extends Omit<Options, "platform"> {
  /** `env.LIMITER`, the binding. If it is missing, the first check reports it. */
  binding: Binding | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
}

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
    const binding = fields.get("binding") as Binding | undefined;
    const right = `"ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]`;
    if (binding !== undefined && typeof binding.limit !== "function") {
      throw invalid("binding", `not a Rate Limiting binding; in wrangler.jsonc, write ${right}`);
    }
    const ready = {
      ...common(fields, 250, "cloudflare"),
      apart: true,
      broken: binding === undefined ? missing("binding", `in wrangler.jsonc, write ${right}`) : undefined,
    };
    super(ready, () => new Core(ready, NATIVE, ruleOf), (core) => new Counter(core, binding!));
  }
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

/** Asks the binding. */
class Counter implements Store {
  readonly name = "Rate Limiting binding";
  readonly #core: StoreCore;
  readonly #binding: Binding;

  constructor(core: StoreCore, binding: Binding) {
    this.#core = core;
    this.#binding = binding;
  }

  send({ question }: Call): Promise<boolean> {
    this.#core.verify(question);
    return this.#count(this.#core.storage(question).rows[0]!);
  }

  answered({ question: { now } }: Call, isAdmitted: unknown): undefined {
    const { limit } = this.#core.policy.quotas[0]!.rule;
    this.#core.decision = [isAdmitted ? ALLOWED : DENIED, 0, UNKNOWN, 0, now, FROM_STORE, 0, limit, UNKNOWN, UNKNOWN];
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
