import * as glue from "#versioned/glue";
import module from "#versioned/module";
import { Calls, NOTHING } from "../../calls.js";
import { start } from "../../engine.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, type Options } from "../../options.js";
import { Queue } from "../../queue.js";
import { type Answer, CONFLICT_PAUSE_MS_MAX, pause, type Wanted } from "../../versioned.js";

export * from "../../exports.js";

/** The options of a limiter on Netlify Blobs. */
export interface BlobsOptions extends Options {
  /** `getStore({ name: "tidegate", consistency: "strong" })` of `@netlify/blobs`. */
  blobs: object;
  /** How the site reads. Default: `strong`. */
  consistency?: "strong" | "eventual" | undefined;
}

const engine = start(module, glue);

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
  constructor(options: BlobsOptions) {
    const fields = new Fields(options, "", [...COMMON, "blobs", "consistency"]);
    // A read near the client may return an old value. Blobs do not expire.
    const ready = { ...common(fields, 2_000), queue: new Queue(), storeName: "blobs", readsLastWrite: false, minTtlMs: 0 };
    const right = `getStore({ name: "tidegate", consistency: "strong" }) of @netlify/blobs`;
    const blobs = fields.need("blobs", fields.get("blobs"), right) as Blobs;
    if ((["getWithMetadata", "set", "delete"] as const).some((name) => typeof blobs[name] !== "function")) {
      throw invalid("blobs", `not a store; write ${right}`);
    }
    const consistency = fields.choice("consistency", ["strong", "eventual"]) ?? "strong";
    super(engine, ready, (gate) => new Calls(gate, (wanted) => ask(blobs, consistency, wanted), ready));
  }
}

/** Writes only if nothing was stored, or over the version that was read, so that nothing is admitted twice. */
async function ask(blobs: Blobs, consistency: string, wanted: string): Promise<Answer> {
  const [verb, name, bytes, version] = JSON.parse(wanted) as Wanted;
  if (verb === "read") {
    const found = await blobs.getWithMetadata(name, { type: "arrayBuffer", consistency });
    if (!found) return [404, NOTHING];
    return [200, new Uint8Array(found.data), typeof found.etag === "string" ? found.etag : undefined];
  }
  if (verb === "delete") {
    await blobs.delete(name);
    return [200, NOTHING];
  }
  const condition = version === null ? { onlyIfNew: true } : { onlyIfMatch: version };
  const written = await blobs.set(name, Uint8Array.from(bytes).buffer, condition);
  if (written?.modified !== false) return [written?.modified === true ? 200 : 0, NOTHING];
  await pause(CONFLICT_PAUSE_MS_MAX);
  return [412, NOTHING];
}
