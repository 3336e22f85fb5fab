import type { LimiterParts } from "./base_limiter.js";
import { anyRule } from "./core/algorithms/make_algorithm.js";
import { local } from "./core/capabilities.js";
import { Policy } from "./core/policy.js";
import { LAYER } from "./layer.js";
import { Limiter, type LimitOptions, type Ready } from "./limiter.js";
import { ExactCore } from "./limiter_core.js";
import type { Keys } from "./core/key.js";
import type { Question } from "./question.js";
import type { Verdict } from "./verdict.js";

/** A limiter in the memory of this process, which decides at once. */
export abstract class LocalLimiter extends Limiter {
  readonly #decide = (asked: Question): Verdict => this.verdictOf(undefined, asked, this[LAYER].known!(asked)!);

  protected constructor(options: Ready, asked: (core: ExactCore) => Pick<LimiterParts, "layer" | "log">) {
    super(options, () => {
      const core = new ExactCore(new Policy(options, anyRule), local());
      return { core, ...asked(core) };
    });
  }

  /** Decides like `limit`, without a promise. */
  decide(key: string | Keys, options?: LimitOptions): Verdict {
    return this.begin(key, options, true, this.#decide);
  }

  override limit(key: string | Keys, options?: LimitOptions): Promise<Verdict> {
    return Promise.resolve(this.decide(key, options));
  }
}
