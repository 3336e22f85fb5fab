import { CachingLimiter } from "../../caching_limiter.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { COMMON, common, type Options } from "../../options.js";
import { Queue } from "../../queue.js";
import { type Values, Versioned, versioned } from "../../versioned.js";

export * from "../../store_exports.js";

/** The options of a limiter on Netlify Blobs. */
export interface BlobsOptions extends Options {
  /** `getStore({ name: "tidegate", consistency: "strong" })` of `@netlify/blobs`. */
  blobs: object;
  /** How the site reads. Default: `strong`. */
  consistency?: "strong" | "eventual" | undefined;
}

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
export class Tidegate extends CachingLimiter {
  constructor(options: BlobsOptions) {
    const fields = new Fields(options, "", [...COMMON, "blobs", "consistency"]);
    const ready = { ...common(fields, 2_000), queue: new Queue() };
    const right = `getStore({ name: "tidegate", consistency: "strong" }) of @netlify/blobs`;
    const blobs = fields.need("blobs", fields.get("blobs"), right) as Blobs;
    if ((["getWithMetadata", "set", "delete"] as const).some((name) => typeof blobs[name] !== "function")) {
      throw invalid("blobs", `not a store; write ${right}`);
    }
    const consistency = fields.choice("consistency", ["strong", "eventual"]) ?? "strong";
    // A read near the client may return an old value.
    const readsLastWrite = false;
    super(ready, versioned(readsLastWrite), (core) => new Versioned("blobs", core, values(blobs, consistency)));
  }
}

/** `@netlify/blobs` waits for so long before it repeats a write that got no answer, or an error. */
const REPEATS_AFTER_MS = 5_000;

/** Writes only if nothing was stored, or over the version that was read, so that nothing is admitted twice. */
function values(blobs: Blobs, consistency: string): Values {
  return {
    async read(name) {
      const found = await blobs.getWithMetadata(name, { type: "arrayBuffer", consistency });
      return found ? { bytes: new Uint8Array(found.data), version: typeof found.etag === "string" ? found.etag : undefined } : undefined;
    },
    async write(name, bytes, version) {
      const began = performance.now();
      const written = await blobs.set(name, bytes.buffer, version === undefined ? { onlyIfNew: true } : { onlyIfMatch: version });
      const modified = typeof written?.modified === "boolean" ? written.modified : undefined;
      if (modified === false && performance.now() - began >= REPEATS_AFTER_MS) {
        // To decide again would charge again, if it is the first attempt that was made. The store is up, so the gate stays closed.
        throw ["contended", "blobs: a write got no answer, and was not made when @netlify/blobs repeated it; the request may have been charged"];
      }
      return modified;
    },
    async delete(name) {
      await blobs.delete(name);
    },
  };
}
