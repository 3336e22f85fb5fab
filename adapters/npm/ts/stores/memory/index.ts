import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { PolicyLayer } from "../../layer.js";
import { LocalLimiter } from "../../local_limiter.js";
import { FailureLog } from "../../log.js";
import { COMMON, common, type Options } from "../../options.js";
import { BOUNDS, Memory, WHEN_FULL } from "./memory.js";

export * from "../../store_exports.js";

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
  protected readonly log: FailureLog;


  constructor(options: MemoryOptions) {
    const fields = new Fields(options, "", [...COMMON, "maxKeys", "whenFull"]);
    const bounds = { maxKeys: fields.whole("maxKeys") ?? BOUNDS.maxKeys, whenFull: fields.choice("whenFull", WHEN_FULL) ?? BOUNDS.whenFull };
    if (bounds.maxKeys === 0) throw invalid("maxKeys", "0 leaves no room for a count; write at least 1");
    const ready = common(fields, 1_000);
    const log = new FailureLog(ready.onError);
    super(ready, (core) => new PolicyLayer(core, new Memory(core, bounds, (message) => log.warn(message))));
    this.log = log;
  }
}
