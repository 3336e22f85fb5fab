import { Numbers } from "./rules/limits_from_data.js";
import type { MakeLimitNumbers } from "./rules/rules.js";

/**
 * The option `limits` of a gate whose rules have `limit_from` or `overrides`:
 *
 *     const gate = new Gate(rules, { …, limits: limitsFromData });
 *     const verdict = await gate.check(request, { subject: user.id, limits: { rpm: user.plan.rpm } });
 */
export const limitsFromData: MakeLimitNumbers = (before) => new Numbers(before as Numbers | undefined);
