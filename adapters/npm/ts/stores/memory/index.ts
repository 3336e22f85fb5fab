import type { BaseCheckOptions } from "../../base_limiter.js";
import { type Capabilities, local } from "../../core/capabilities.js";
import type { Keys } from "../../core/key.js";
import { type Policy, type ReadyPolicy, solePolicy } from "../../core/policy.js";
import { invalid } from "../../error.js";
import { choice, Fields } from "../../fields.js";
import { LAYER, PolicyLayer } from "../../layer.js";
import { ExactCore } from "../../limiter_core.js";
import { LocalLimiter } from "../../local_limiter.js";
import { FailureLog } from "../../log.js";
import { COMMON, common, type Options } from "../../options.js";
import { loadedRule, PARTS, PartsLimiter, partsOf, type PartsOptions } from "../../parts_limiter.js";
import type { Question } from "../../question.js";
import type { Verdict } from "../../verdict.js";
import { Checks, MAX_KEYS } from "./checks.js";
import { BOUNDS, Memory, WHEN_FULL } from "./memory.js";
import { decidingOf, type MemoryPolicy } from "./several.js";

export * from "../../store_exports.js";

/** What the memory supports, and how exact it is: `Tidegate.capabilities`, for who uses a `RateLimiter`. */
export const capabilities: Capabilities = /* @__PURE__ */ local();

export { type AllOf, allOf, type MemoryPolicy } from "./several.js";

/** The options of a limiter in memory. */
export interface MemoryOptions extends Options {
  /** The most keys that have a count of their own, of each dimension of the policy. Default: 1,000,000. */
  maxKeys?: number | undefined;
  /**
   * What happens to a further key when there are `maxKeys`, until some of them have expired. `evict`, the default: it takes the place of
   * one that has used little of its limit, whose count is forgotten. `share`: it shares a count with others, so that no count is ever
   * forgotten, and may be denied for what they have used. `deny`: it is refused with a 503.
   */
  whenFull?: (typeof WHEN_FULL)[number] | undefined;
}

/**
 * A limiter in the memory of this process: for development, tests, and applications of one process. It is exact, and a decision
 * takes less than a microsecond. Each process and each isolate counts for itself; within one, limiters of the same policy count
 * together. It remembers a million keys: see `maxKeys`.
 *
 *     const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *     const { allowed } = tidegate.decide("user:42");
 */
export class Tidegate extends LocalLimiter {
  constructor(options: MemoryOptions) {
    const fields = new Fields(options, "", [...COMMON, "maxKeys", "whenFull"]);
    const bounds = { maxKeys: maxKeysIn(fields), whenFull: fields.read("whenFull", choice(WHEN_FULL)) ?? BOUNDS.whenFull };
    const ready = common(fields, 1_000);
    const log = new FailureLog(ready.onError);
    super(ready, (core) => ({ layer: new PolicyLayer(core, new Memory(core, bounds, (message) => log.warn(message))), log }));
  }
}

/** The options of a `RateLimiter` in memory. */
export interface RateLimiterOptions extends Omit<PartsOptions, "policy"> {
  /** A policy of one quota that a function makes, or of several: `{ name: "api", quotas: [slidingWindow(100, "1 min")] }`. */
  policy: MemoryPolicy;
  /** The most keys that have a count of their own, of each dimension of the policy. A further one evicts another. Default: 1,000,000. */
  maxKeys?: number | undefined;
}

/**
 * The same limiter in half of the code, for an application that bundles it: its quota is a function of `@tidegate/edge/parts`, and a bundler
 * leaves out all others, and what decides by several, unless they are `allOf` them. It decides, and does nothing else: what settles, refunds,
 * blocks and peeks is `Tidegate`. Both count together, if their policies are the same.
 *
 *     const limiter = new RateLimiter({ policy: { name: "api", quotas: [slidingWindow(100, "1 min")] } });
 *     const { allowed } = limiter.decide("user:42");
 */
export class RateLimiter extends PartsLimiter {
  readonly #decide = (asked: Question): Verdict => this.verdictOf(undefined, asked, this[LAYER].known!(asked)!);

  constructor(options: RateLimiterOptions) {
    const fields = new Fields(options, "", [...PARTS, "maxKeys"]);
    const ready = partsOf(fields);
    const log = new FailureLog(ready.onError);
    const deciding = decidingOf(fields) ?? { policy: oneQuota, Checks };
    super(ready, () => {
      const core = new ExactCore(deciding.policy(ready));
      return { core, layer: new PolicyLayer(core, new deciding.Checks(core, maxKeysIn(fields), (message) => log.warn(message))), log };
    });
  }

  /** Decides like `limit`, without a promise. */
  decide(key: string | Keys, options?: Omit<BaseCheckOptions, "key" | "keys" | "peer">): Verdict {
    return this.begin(key, options, true, this.#decide);
  }

  override limit(key: string | Keys, options?: Omit<BaseCheckOptions, "key" | "keys" | "peer">): Promise<Verdict> {
    return Promise.resolve(this.decide(key, options));
  }
}

/** The policy of an array. */
function oneQuota(parts: ReadyPolicy): Policy {
  return solePolicy(parts, loadedRule, (count) => invalid("policy.quotas", `${count} quotas in an array; write one, or several in allOf(…) of "@tidegate/edge/memory"`));
}

function maxKeysIn(fields: Fields): number {
  const maxKeys = fields.whole("maxKeys") ?? MAX_KEYS;
  if (maxKeys === 0) throw invalid("maxKeys", "0 leaves no room for a count; write at least 1");
  return maxKeys;
}
