import { type CalledOptions, calledStore } from "./called_store.js";
import type { Runner } from "./calls.js";
import type { Layer } from "./layer.js";
import { Limiter, type Ready } from "./limiter.js";
import type { StoreCore } from "./limiter_core.js";

/** A limiter that calls its store. `around` is what is asked in its place. */
export abstract class RemoteLimiter extends Limiter {
  protected constructor(options: Ready & CalledOptions, coreOf: () => StoreCore, runnerOf: (core: StoreCore) => Runner, around?: (store: Layer) => Layer) {
    super(options, () => {
      const core = coreOf();
      return calledStore(options, core, runnerOf(core), around);
    });
  }
}
