import { waitUntil } from "cloudflare:workers";
import { CachingLimiter } from "../../caching_limiter.js";
import { type Capabilities, EXACT, lends } from "../../core/capabilities.js";
import { invalid } from "../../error.js";
import { choice, Fields } from "../../fields.js";
import { type Leases, lending } from "../../leases.js";
import { PlaceCore } from "../../limiter_core.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { type Objects, Stubs } from "./stubs.js";

export * from "../../store_exports.js";
export { TidegateObject } from "./object.js";
export type { Leases } from "../../leases.js";
export type { Objects } from "./stubs.js";

const JURISDICTIONS = ["eu", "us", "fedramp", "fedramp-high"] as const;
/** A jurisdiction of Durable Objects. */
export type Jurisdiction = (typeof JURISDICTIONS)[number];

/** The options of a limiter on Durable Objects. */
export interface ObjectOptions extends Omit<Options, "platform"> {
  /** `env.TIDEGATE`, the binding of the namespace. If it is missing, the first check reports it. */
  namespace: Objects | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
  /** Admits and denies requests from leases, which need no call of the object. See `Leases`. Default: false. */
  leases?: boolean | Leases | undefined;
  /** Counts all keys in this many objects. Default: 0, one object for each key. */
  shards?: number | undefined;
  /**
   * Where objects run and store, by law. A change moves the keys, whose counts start anew. `wrangler dev` knows no jurisdictions: there,
   * objects are in none, and the log says so. Default: anywhere.
   */
  jurisdiction?: Jurisdiction | undefined;
  /** Where to create objects, such as `weur`. The platform reads it at an object's first call. Default: near that call. */
  locationHint?: string | undefined;
  /** Whose clock decides. Default: `object`. */
  clock?: "caller" | "object" | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/** An object decides exactly on all that it stores: on one key of a policy, or on all keys of a group. */
const CAPABILITIES: Capabilities = { ...EXACT, dimensions: "grouped" };

/** The part of a namespace whose objects are in a jurisdiction. workerd by itself, as `wrangler dev` runs it, has none. */
function within(namespace: Objects, jurisdiction: Jurisdiction): Objects {
  try {
    return namespace.jurisdiction!(jurisdiction as never) as Objects;
  } catch (thrown) {
    if ((thrown as Error).message !== "Jurisdiction restrictions are not implemented in workerd.") throw thrown;
    console.warn(`tidegate: workerd has no jurisdictions, so objects are not in "${jurisdiction}" here`);
    return namespace;
  }
}

/**
 * A limiter on Cloudflare's Durable Objects. It is exact at any concurrency, and a decision is one call of the key's object.
 *
 *     import { env } from "cloudflare:workers";
 *     import { Tidegate } from "@tidegate/edge/cloudflare";
 *     export { TidegateObject } from "@tidegate/edge/cloudflare";
 *
 *     const policy = { name: "api", quotas: ["10 / 10 s"] };
 *     const tidegate = new Tidegate({ namespace: env.TIDEGATE, failMode: "open", policy });
 */
export class Tidegate extends CachingLimiter {
  constructor(options: ObjectOptions) {
    const fields = new Fields(options, "", [...COMMON, "namespace", "leases", "shards", "jurisdiction", "locationHint", "clock", "minTtlMs"]);
    const namespace = fields.get("namespace") as Objects | undefined;
    const right = `"durable_objects": { "bindings": [{ "name": "TIDEGATE", "class_name": "TidegateObject" }] } and "migrations": [{ "tag": "v1", "new_sqlite_classes": ["TidegateObject"] }]`;
    if (namespace !== undefined && typeof namespace.getByName !== "function") {
      throw invalid("namespace", `not a namespace of Durable Objects; in wrangler.jsonc, write ${right}`);
    }
    const all = common(fields, 2_000, "cloudflare");
    const ready = {
      ...all,
      apart: true,
      broken: namespace === undefined ? missing("namespace", `bind one: in wrangler.jsonc, write ${right}`) : undefined,
      ...lending(fields, all.deadlineMs, waitUntil),
      isTimeless: fields.read("clock", choice(["caller", "object"])) !== "caller",
      shards: fields.whole("shards") ?? 0,
      minTtlMs: fields.whole("minTtlMs") ?? 0,
    };
    const jurisdiction = fields.read("jurisdiction", choice(JURISDICTIONS));
    const objects = namespace && jurisdiction ? within(namespace, jurisdiction) : namespace;
    const locationHint = fields.text("locationHint", `a location such as "weur"`);
    const hint = locationHint === undefined ? undefined : { locationHint };
    super(ready, lends(CAPABILITIES, ready), PlaceCore, (core) => new Stubs(core, objects!, hint, ready));
  }
}
