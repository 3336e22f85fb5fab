import { Limiter, type LimitOptions } from "./limiter.js";
import type { Keys, Verdict } from "./verdict.js";

/** A limiter in the memory of this process, which decides at once. */
export abstract class LocalLimiter extends Limiter {
  /** Decides like `limit`, without a promise. */
  decide(key: string | Keys, options?: LimitOptions): Verdict {
    return this.decideNow(key, options);
  }

  override limit(key: string | Keys, options?: LimitOptions): Promise<Verdict> {
    return Promise.resolve(this.decideNow(key, options));
  }
}
