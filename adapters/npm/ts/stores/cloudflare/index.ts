import { calls } from "../../calls.js";
import type { Core } from "../../core.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import type { ObjectLimit } from "../../glue.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { type Objects, Stubs } from "./stubs.js";
import { engine } from "./engine.js";

export * from "../../exports.js";
export { TidegateObject } from "./object.js";
export type { Objects } from "./stubs.js";

/** The options of a limiter on Durable Objects. */
export interface ObjectOptions extends Omit<Options, "platform"> {
  /** `env.TIDEGATE`, the binding of the namespace. If it is missing, the first check reports it. */
  namespace: Objects | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
  /** Admits requests from leases, which need no call of the object. See `Leases`. Default: false. */
  leases?: boolean | Leases | undefined;
  /** Counts all keys in this many objects. Default: 0, one object for each key. */
  shards?: number | undefined;
  /** Where to create objects, such as `weur`. The platform reads it at an object's first call. Default: near that call. */
  locationHint?: string | undefined;
  /** Whose clock decides. Default: `object`. */
  clock?: "caller" | "object" | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/**
 * An isolate leases units of a key, and decides on requests without a call as long as a lease or a denial holds. No more than the limit
 * is ever admitted. Leases are as large and as long as the key's requests and what is left of its limit allow, within these bounds. Up to
 * two slices for each isolate may stay unused within a lifetime, and a denial may miss a reset elsewhere for as long.
 */
export interface Leases {
  /** The most units that an isolate holds of a key. Default: 50. */
  slice?: number | undefined;
  /** At most a minute, the default. */
  lifetimeMs?: number | undefined;
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
export class Tidegate extends Limiter {
  constructor(options: ObjectOptions) {
    const fields = new Fields(options, "", [...COMMON, "namespace", "leases", "shards", "locationHint", "clock", "minTtlMs"]);
    const namespace = fields.get("namespace") as Objects | undefined;
    const right = `"durable_objects": { "bindings": [{ "name": "TIDEGATE", "class_name": "TidegateObject" }] }`;
    if (namespace !== undefined && typeof namespace.getByName !== "function") {
      throw invalid("namespace", `not a namespace of Durable Objects; in wrangler.jsonc, write ${right}`);
    }
    const ready = {
      ...common(fields, 2_000, "cloudflare"),
      apart: true,
      broken: namespace === undefined ? missing("namespace", `bind one: in wrangler.jsonc, write ${right}`) : undefined,
      isTimeless: fields.choice("clock", ["caller", "object"]) !== "caller",
    };
    const { slice, lifetimeMs } = leases(fields.get("leases"));
    const own = [ready.isTimeless, fields.whole("shards") ?? 0, fields.whole("minTtlMs") ?? 0, slice, lifetimeMs, ready.deadlineMs];
    const locationHint = fields.text("locationHint", `a location such as "weur"`);
    const hint = locationHint === undefined ? undefined : { locationHint };
    super(engine, ready, own, (core: Core<ObjectLimit>) => calls(new Stubs(core, namespace!, hint, { ...ready, borrows: slice > 0 }), core, ready));
  }
}

function leases(value: unknown) {
  const on = { slice: 50, lifetimeMs: 60_000 };
  if (value === undefined || value === false) return { ...on, slice: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "leases", ["slice", "lifetimeMs"]);
  return { slice: fields.whole("slice") ?? on.slice, lifetimeMs: fields.whole("lifetimeMs") ?? on.lifetimeMs };
}
