import { type Capabilities, supportsPolicy } from "../../core/capabilities.js";
import type { Policy } from "../../core/policy.js";
import { TidegateError } from "../../error.js";

/** Throws if a store cannot count by a policy. The error has the names of a rules file. */
export function checkPolicy(can: Capabilities, policy: Policy): void {
  try {
    supportsPolicy(can, policy);
  } catch (thrown) {
    const [, message] = thrown as [kind: string, message: string];
    const what = message.slice("policy: ".length).replace("chargeDenied", "charge_denied").replace("groupBy", "group_by");
    throw TidegateError.from(["unsupported", what]);
  }
}

/** Throws that a store does not support something, unless it does. */
export function checkSupport(able: boolean, what: string): void {
  if (!able) throw TidegateError.from(["unsupported", `this store does not support ${what}`]);
}
