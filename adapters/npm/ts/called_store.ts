import type { LimiterParts } from "./base_limiter.js";
import type { Runner } from "./calls.js";
import type { TidegateError } from "./error.js";
import { type Layer, PolicyLayer } from "./layer.js";
import type { ExactCore } from "./limiter_core.js";
import type { Options } from "./options.js";
import { logOf, PolicyStore } from "./store_health.js";

/** What a limiter needs to tell of its store. */
export interface CalledOptions {
  onError: Options["onError"];
  failsOpen: boolean;
  broken?: TidegateError | undefined;
}

/** What a limiter consists of that calls its store. `around` is what is asked in its place. */
export function calledStore(options: CalledOptions, core: ExactCore, runner: Runner, around = (store: Layer) => store): LimiterParts {
  const store = new PolicyStore(new PolicyLayer(core, runner, options.broken));
  return { core, layer: around(store), log: logOf(options, store) };
}
