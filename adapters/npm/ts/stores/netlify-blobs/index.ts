import { invalid, TidegateError } from "../../error.js";
import { choice, Fields } from "../../fields.js";
import { COMMON, type Options } from "../../options.js";
import { VersionedLimiter } from "../../versioned_limiter.js";
import type { VersionedStore } from "../../versioned_store.js";

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
export class Tidegate extends VersionedLimiter {
  constructor(options: BlobsOptions) {
    const fields = new Fields(options, "", [...COMMON, "blobs", "consistency"]);
    const right = `getStore({ name: "tidegate", consistency: "strong" }) of @netlify/blobs`;
    const blobs = fields.need("blobs", fields.get("blobs"), right) as Blobs;
    if ((["getWithMetadata", "set", "delete"] as const).some((name) => typeof blobs[name] !== "function")) {
      throw invalid("blobs", `not a store; write ${right}`);
    }
    const store = storeOf(blobs, fields.read("consistency", choice(["strong", "eventual"])) ?? "strong");
    const { blobs: _, consistency: __, ...others } = options;
    super({ ...others, store });
  }
}

/** `@netlify/blobs` waits for so long before it repeats a write that got no answer, or an error. */
const REPEATS_AFTER_MS = 5_000;

/** Errors of `@netlify/blobs` that no request can help. */
const REFUSED = ["BlobsConsistencyError", "MissingBlobsEnvironmentError"];

/** Writes only if nothing was stored, or over the version that was read, so that nothing is admitted twice. */
function storeOf(blobs: Blobs, consistency: string): VersionedStore {
  // The names of blobs are paths, and no name can also be a folder.
  const nameOf = (name: string) => name.replaceAll("/", "%2F");
  const swap = async (name: string, bytes: Uint8Array, condition: object) => {
    const began = performance.now();
    const modified = (await refusing(() => blobs.set(nameOf(name), bytes.buffer as ArrayBuffer, condition)))?.modified;
    if (typeof modified !== "boolean") {
      throw new TidegateError("refused", "a write does not report whether it was made; use a store of @netlify/blobs 10 or newer; the request may have been charged");
    }
    if (!modified && performance.now() - began >= REPEATS_AFTER_MS) {
      // To decide again would charge again, if it is the first attempt that was made. The store is up, so the gate stays closed.
      throw new TidegateError("contended", "a write got no answer, and was not made when @netlify/blobs repeated it; the request may have been charged");
    }
    return modified;
  };
  return {
    name: "blobs",
    // A read near the client may return an old value.
    staleReads: true,
    keepsForever: true,
    async read(name) {
      const found = await refusing(() => blobs.getWithMetadata(nameOf(name), { type: "arrayBuffer", consistency }));
      if (!found) return undefined;
      if (typeof found.etag !== "string" || found.etag === "") throw new TidegateError("refused", "a value came without an ETag, so it cannot be written safely; nothing was charged");
      return { bytes: new Uint8Array(found.data), version: found.etag };
    },
    create: (name, bytes) => swap(name, bytes, { onlyIfNew: true }),
    update: (name, bytes, version) => swap(name, bytes, { onlyIfMatch: version }),
    delete: (name) => blobs.delete(nameOf(name)),
  };
}

async function refusing<T>(use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (thrown) {
    const { name = "", message } = Object(thrown) as Partial<Error>;
    throw REFUSED.includes(name) ? new TidegateError("refused", `${name}: ${message}; nothing was charged`) : thrown;
  }
}
