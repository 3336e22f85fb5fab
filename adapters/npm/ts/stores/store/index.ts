import { type StoreOptions, VersionedLimiter } from "../../versioned_limiter.js";

export * from "../../store_exports.js";
export type { StoreOptions } from "../../versioned_limiter.js";
export type { Swap, VersionedStore, VersionedValue } from "../../versioned_store.js";

/**
 * A limiter on a store of your own: four functions over what a database has, see `VersionedStore`. It is exact at any concurrency if
 * the store keeps that contract. A decision is a read and a conditional write, which are repeated if another write came first. Decisions of
 * one process about one key that come at the same time are one write.
 *
 *     const tidegate = new Tidegate({ store, platform: "direct", failMode: "open", policy: { name: "api", quotas: ["10 / 10 s"] } });
 */
export class Tidegate extends VersionedLimiter {
  constructor(options: StoreOptions) {
    super(options);
  }
}
