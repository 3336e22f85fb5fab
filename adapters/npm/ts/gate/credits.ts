import { BALANCES } from "../balances.js";
import { MAX_UNITS } from "../core/arithmetic.js";
import type { ReadyQuota } from "../core/policy.js";
import { grant } from "./grant.js";
import type { FileValue } from "./rules/file_value.js";
import { inFile } from "./rules/quotas.js";

export type { GrantOptions } from "../granting.js";
export type { Credit, Grantee } from "./grant.js";

/**
 * The option `credits` of a gate whose rules have a `balance`, and of one that grants:
 *
 *     const gate = Gate.fromRules(rules, { …, credits: balances });
 *     await gate.grant({ limit: "api", to: { subject: user.id }, units: 5_000, token: order.id });
 */
export function balances(item: FileValue, quota: ReadyQuota): ReadyQuota {
  const [max, covers] = [item.field("max"), item.has("covers")];
  const ready = { ...quota, amount: max ? max.number : MAX_UNITS, refill: Number(covers), part: BALANCES };
  item.placing(() => BALANCES.rule(ready, ""), (message) => inFile(item, message));
  return ready;
}
balances.fields = ["max", "covers"] as readonly string[];
balances.grant = grant;
