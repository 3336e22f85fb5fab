import type { Lease } from "../gate/asked.js";

/** A lease, as in a file. */
export function leaseOf({ slice, lifetimeMs }: Lease): object {
  return { slice, lifetime_ms: lifetimeMs };
}
