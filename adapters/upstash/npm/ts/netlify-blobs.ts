import * as glue from "#blobs/glue";
import module from "#blobs/module";
import { start } from "./engine.js";
import { Limiter } from "./limiter.js";
import { type BlobsOptions, netlifyBlobs } from "./options.js";

export { type ErrorKind, TollgateError } from "./error.js";
export { type CheckOptions, Limiter } from "./limiter.js";
export type { BlobsOptions, Identity, Options, Platform, Policy, Quota } from "./options.js";
export { type QuotaStatus, Verdict } from "./verdict.js";

const engine = start(module, glue);

/**
 * A limiter on Netlify Blobs: a read and a conditional write a decision, tried again where another came first. It never
 * admits more than the limit; who loses to others too often is not decided on, and goes by the fail mode. For limits that
 * few requests share: a key's decisions are made one after another.
 *
 *     const tollgate = new Tollgate({ blobs: getStore({ name: "tollgate", consistency: "strong" }), platform: "netlify", … });
 */
export class Tollgate extends Limiter {
  readonly #turns = new Map<string, Promise<unknown>>();

  constructor(options: BlobsOptions) {
    super(engine, netlifyBlobs(options));
  }

  /** Within an isolate a key's decisions take turns, for all but one at a time would be in vain. */
  protected override async turn<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#turns.get(key);
    const mine = (async () => {
      await before?.catch(() => undefined);
      return work();
    })();
    this.#turns.set(key, mine);
    try {
      return await mine;
    } finally {
      if (this.#turns.get(key) === mine) this.#turns.delete(key);
    }
  }
}
