import { type CallOptions, Calls } from "./calls.js";
import type { Capabilities } from "./core/capabilities.js";
import type { MakeRule } from "./core/policy.js";
import { type Bounds, DenyCache } from "./deny_cache.js";
import { PolicyLayer } from "./layer.js";
import { Limiter, type Ready } from "./limiter.js";
import { Core } from "./limiter_core.js";
import type { Store } from "./store.js";
import { logOf, PolicyStore, type StoreLog } from "./store_health.js";

/** A limiter that calls its store. The connections and the deny cache live in it. */
export abstract class RemoteLimiter extends Limiter {
  protected readonly log: StoreLog;

  protected constructor(options: Ready & Bounds & CallOptions, capabilities: Capabilities, makeRule: MakeRule, storeOf: (core: Core) => Store) {
    let store: PolicyStore;
    super(options, () => {
      const core = new Core(options, capabilities, makeRule);
      store = new PolicyStore(new PolicyLayer(core, new Calls(storeOf(core), options), options.broken));
      return { core, layer: options.holdMs > 0 ? new DenyCache(store, options) : store };
    });
    this.log = logOf(options, store!);
  }
}
