import type { Lease } from "../question.js";

/** A lease, as in a file. */
export function leaseOf({ slice, lifetimeMs, grace }: Lease): object {
  return { slice, lifetime_ms: lifetimeMs, grace };
}
