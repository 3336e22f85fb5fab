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
 * A limiter on Netlify Blobs: a read and a conditional write a decision, tried again where another came first. Exact where
 * the site reads strongly; for limits that few requests share, for every decision on a key waits for the one before.
 *
 *     const tollgate = new Tollgate({ blobs: getStore({ name: "tollgate", consistency: "strong" }), platform: "netlify", … });
 */
export class Tollgate extends Limiter {
  constructor(options: BlobsOptions) {
    super(engine, netlifyBlobs(options));
  }
}
