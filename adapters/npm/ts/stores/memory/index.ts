import { EXACT } from "../../core/capabilities.js";
import { anyRule } from "../../core/rules/make.js";
import { Fields } from "../../fields.js";
import { Limiter, type LimitOptions } from "../../limiter.js";
import { COMMON, common, type Options } from "../../options.js";
import type { Keys, Verdict } from "../../verdict.js";
import { Memory } from "./memory.js";

export * from "../../exports.js";

/**
 * A limiter in the memory of this process: for development, tests, and applications of one process. It is exact, and a decision
 * takes less than a microsecond. Each process and each isolate counts for itself; within one, limiters of the same policy count
 * together. Beyond a million keys, keys share counts.
 *
 *     const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *     const { allowed } = tidegate.decide("user:42");
 */
export class Tidegate extends Limiter {
  constructor(options: Options) {
    super(common(new Fields(options, "", COMMON), 1_000), { ...EXACT, round_trips: 0 }, anyRule, (core) => new Memory(core));
  }

  /** Decides like `limit`, without a promise. */
  decide(key: string | Keys, options?: LimitOptions): Verdict {
    return this.decideNow(key, options);
  }
}
