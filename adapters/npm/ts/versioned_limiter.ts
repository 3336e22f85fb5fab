import { CachingLimiter } from "./caching_limiter.js";
import { REQUESTS_ARE_APART } from "./calls.js";
import { invalid } from "./error.js";
import { Fields } from "./fields.js";
import { Core } from "./limiter_core.js";
import { COMMON, common, type Options } from "./options.js";
import { Queue } from "./queue.js";
import { Versioned, versioned } from "./versioned.js";
import { FUNCTIONS, type VersionedStore } from "./versioned_store.js";

/** The options of a limiter on a store of your own. */
export interface StoreOptions extends Options {
  store: VersionedStore;
  /**
   * Whether the last value of up to 4,096 keys is remembered, if the store tells versions of what it writes. A decision is then one write
   * in place of a read and a write. A denial is always read. Default: false.
   */
  remember?: boolean | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/** The deadline of a call, unless the options have another. */
export const DEADLINE_MS = 2_000;

/** A limiter on a store with conditional writes. */
export abstract class VersionedLimiter extends CachingLimiter {
  constructor(options: StoreOptions) {
    const fields = new Fields(options, "", [...COMMON, "store", "remember", "minTtlMs"]);
    const right = "an object with read, create, update and delete";
    const store = fields.need("store", fields.get("store"), right) as VersionedStore;
    for (const name of FUNCTIONS) if (typeof Object(store)[name] !== "function") throw invalid("store", `${name} is no function; write ${right}`);
    const use = {
      remembers: fields.flag("remember") ?? false,
      ttlMin: fields.whole("minTtlMs") ?? 0,
      // No call may wait for another's where requests are apart.
      queue: REQUESTS_ARE_APART ? undefined : new Queue(),
    };
    const name = typeof store.name === "string" ? store.name : "store";
    const ready = { ...common(fields, DEADLINE_MS), ...(use.queue && { queue: use.queue }) };
    super(ready, versioned(!store.staleReads, use.remembers), Core, (core) => new Versioned(name, core, store, use));
  }
}
