import * as glue from "#blobs/glue";
import module from "#blobs/module";
import type { Answer } from "./calls.js";
import { start } from "./engine.js";
import { Limiter } from "./limiter.js";
import { type BlobsOptions, netlifyBlobs } from "./options.js";
import { Queue } from "./queue.js";

export { type ErrorKind, TidegateError } from "./error.js";
export { type CheckOptions, Limiter } from "./limiter.js";
export type { BlobsOptions, ErrorEvent, Identity, Operation, Options, Platform, Policy, Quota } from "./options.js";
export { type Charge, type Keys, type QuotaStatus, Verdict } from "./verdict.js";

const engine = start(module, glue);

/** The longest pause between a conflicting write and the next read. */
const PAUSE_MS_MAX = 20;

const NOTHING = new Uint8Array();

/** The part of a store of `@netlify/blobs` that is used. */
interface Blobs {
  getWithMetadata(name: string, options: object): Promise<{ data: ArrayBuffer; etag?: unknown } | null>;
  /** Before version 10 it returned nothing. */
  set(name: string, bytes: ArrayBuffer, condition: object): Promise<{ modified?: unknown } | undefined>;
  delete(name: string): Promise<unknown>;
}

/**
 * A limiter on Netlify Blobs. A decision is a read and a conditional write, which are repeated if another write came first.
 *
 * It never admits more than the limit while the store is up. It suits keys that few requests share: the decisions for one key
 * are made one after another, and a request whose writes conflict until the deadline fails as `contended`.
 *
 *     const tidegate = new Tidegate({ blobs: getStore({ name: "tidegate", consistency: "strong" }), platform: "netlify", … });
 */
export class Tidegate extends Limiter {
  readonly #blobs: Blobs;
  readonly #consistency: BlobsOptions["consistency"];

  constructor(options: BlobsOptions) {
    const ready = netlifyBlobs(options);
    super(engine, ready, new Queue());
    this.#blobs = ready.blobs as unknown as Blobs;
    this.#consistency = ready.consistency;
  }

  /** Writes only if nothing was stored, or over the version that was read, so that nothing is admitted twice. */
  protected override async ask(wanted: string): Promise<Answer> {
    const [verb, name, bytes, version] = JSON.parse(wanted) as ["read" | "write" | "delete", string, number[], string | null];
    if (verb === "read") {
      const found = await this.#blobs.getWithMetadata(name, { type: "arrayBuffer", consistency: this.#consistency });
      if (!found) return [404, NOTHING];
      return [200, new Uint8Array(found.data), typeof found.etag === "string" ? found.etag : undefined];
    }
    if (verb === "delete") {
      await this.#blobs.delete(name);
      return [200, NOTHING];
    }
    const condition = version === null ? { onlyIfNew: true } : { onlyIfMatch: version };
    const written = await this.#blobs.set(name, Uint8Array.from(bytes).buffer, condition);
    if (written?.modified !== false) return [written?.modified === true ? 200 : 0, NOTHING];
    // A random pause, because limiters that retry at the same pace could conflict forever.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * PAUSE_MS_MAX));
    return [412, NOTHING];
  }
}
