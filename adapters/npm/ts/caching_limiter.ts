import { type CallOptions, Calls } from "./calls.js";
import { anyRule } from "./core/algorithms/make_algorithm.js";
import type { Capabilities } from "./core/capabilities.js";
import { type Bounds, DenyCache } from "./deny_cache.js";
import type { Layer } from "./layer.js";
import type { Ready } from "./limiter.js";
import type { StoreCore } from "./limiter_core.js";
import { RemoteLimiter } from "./remote_limiter.js";
import type { Store } from "./store.js";

/** A limiter that calls a store of any policies, and may remember how long that denies a key. `Core` is made for what the store can. */
export abstract class CachingLimiter extends RemoteLimiter {
  protected constructor(options: Ready & Bounds & CallOptions, capabilities: Capabilities, Core: typeof StoreCore, storeOf: (core: StoreCore) => Store) {
    const around = (store: Layer) => (options.holdMs > 0 ? new DenyCache(store, options) : store);
    super(options, () => new Core(options, capabilities, anyRule), (core) => new Calls(storeOf(core), options), around);
  }
}
