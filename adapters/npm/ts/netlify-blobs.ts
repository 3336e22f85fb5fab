import * as glue from "#blobs/glue";
import module from "#blobs/module";
import type { Answer } from "./calls.js";
import { start } from "./engine.js";
import { Limiter } from "./limiter.js";
import { type BlobsOptions, netlifyBlobs } from "./options.js";

export { type ErrorKind, TidegateError } from "./error.js";
export { type CheckOptions, Limiter } from "./limiter.js";
export type { BlobsOptions, Identity, Options, Platform, Policy, Quota } from "./options.js";
export { type QuotaStatus, Verdict } from "./verdict.js";

const engine = start(module, glue);

/** How long who lost to another waits at most, before it reads again. */
const PAUSE_MS_MAX = 20;

const NOTHING = new Uint8Array();

/** What `getStore` of `@netlify/blobs` gives. */
interface Blobs {
  getWithMetadata(name: string, options: object): Promise<{ data: ArrayBuffer; etag?: unknown } | null>;
  /** Before version 10 it tells nothing. */
  set(name: string, bytes: ArrayBuffer, condition: object): Promise<{ modified?: unknown } | undefined>;
  delete(name: string): Promise<unknown>;
}

/**
 * A limiter on Netlify Blobs: a read and a conditional write a decision, tried again where another came first. It never
 * admits more than the limit; who loses to others too often is not decided on, and goes by the fail mode. For limits that
 * few requests share: a key's decisions are made one after another.
 *
 *     const tidegate = new Tidegate({ blobs: getStore({ name: "tidegate", consistency: "strong" }), platform: "netlify", … });
 */
export class Tidegate extends Limiter {
  readonly #turns = new Map<string, Promise<unknown>>();
  readonly #blobs: Blobs;
  readonly #consistency: BlobsOptions["consistency"];

  constructor(options: BlobsOptions) {
    const ready = netlifyBlobs(options);
    super(engine, ready);
    this.#blobs = ready.blobs as unknown as Blobs;
    this.#consistency = ready.consistency;
  }

  /** A write is made only where nothing was, or on top of what was read, so that nothing is admitted twice. */
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
    // Those who try again at the same pace lose to each other forever.
    await new Promise((resolve) => setTimeout(resolve, Math.random() * PAUSE_MS_MAX));
    return [412, NOTHING];
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
