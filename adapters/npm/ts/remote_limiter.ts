import { type CallOptions, Calls } from "./calls.js";
import { type Layer, PolicyLayer } from "./layer.js";
import { Limiter, type Ready } from "./limiter.js";
import type { StoreCore } from "./limiter_core.js";
import type { Store } from "./store.js";
import { logOf, PolicyStore, type StoreLog } from "./store_health.js";

/** A limiter that calls its store. `around` is what is asked in its place. */
export abstract class RemoteLimiter extends Limiter {
  protected readonly log: StoreLog;

  protected constructor(options: Ready & CallOptions, coreOf: () => StoreCore, storeOf: (core: StoreCore) => Store, around = (store: Layer) => store) {
    let store: PolicyStore;
    super(options, () => {
      const core = coreOf();
      store = new PolicyStore(new PolicyLayer(core, new Calls(storeOf(core), options), options.broken));
      return { core, layer: around(store) };
    });
    this.log = logOf(options, store!);
  }
}
