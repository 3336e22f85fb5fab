import { anyRule } from "../../core/algorithms/make_algorithm.js";
import { MAX_UNITS, share } from "../../core/arithmetic.js";
import type { ReadyQuota } from "../../core/policy.js";
import { invalid } from "../../error.js";
import { BUCKETS } from "../rules_policy.js";

/** A quota with another limit. The rate of a bucket changes as its capacity does, rounded down, but is at least 1 unit. */
export function numbered(quota: ReadyQuota, amount: number): ReadyQuota {
  const { algorithm, span } = quota;
  const refill = BUCKETS.includes(algorithm) ? Math.max(share(quota.refill, amount, quota.amount), 1) : quota.refill;
  const found = { ...quota, amount, refill };
  if (anyRule(found, "").unit === span) return found;
  // A bucket of so many units would be stored in another unit.
  throw invalid("capacity", `${amount} is out of range; write a whole number from 1 to ${Math.floor(MAX_UNITS / span)}`);
}
