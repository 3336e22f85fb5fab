import { checkNumbers, LENGTHS } from "../core/algorithms/calendar_window.js";
import { ANCHOR, anchorOf, EVERY, type Every, ZONE, ZonedCalendar } from "../core/calendar.js";
import { hasZone, noAnchor, noZone } from "../core/zone.js";
import type { ReadyQuota } from "../core/policy.js";
import type { FileValue } from "./rules/file_value.js";
import { inFile } from "./rules/quotas.js";
import { quoted } from "./rules/quoted_text.js";
import { suggestion } from "./rules/suggestion.js";

/**
 * The option `calendar` of a gate whose rules have a `calendar_window`:
 *
 *     const gate = Gate.fromRules(rules, { …, calendar: calendarWindows });
 */
export function calendarWindows(item: FileValue, quota: ReadyQuota): ReadyQuota {
  const [every, zone, anchor, carried] = [item.required("every"), item.field("zone"), item.field("anchor"), item.field("carry_over")];
  if (!EVERY.includes(every.text as Every)) throw every.wrong(every.text, `is not a unit of a calendar; ${suggestion(every.text, EVERY)}`);
  if (zone && !hasZone(zone.text)) throw zone.invalid(noZone(zone.text, quoted(zone.text)));
  if (anchor && anchor.node.text === undefined) throw anchor.invalid('expected a text; write a date such as "2026-01-31"');
  if (anchor && anchorOf(anchor.text) === undefined) throw anchor.invalid(noAnchor(quoted(anchor.text)));
  const carryOver = carried?.number ?? 0;
  item.placing(() => checkNumbers("", quota.amount, carryOver), (message) => inFile(item, message.replace("carryOver", "carry_over")));
  const calendar = new ZonedCalendar(every.text as Every, zone?.text ?? ZONE, anchor?.text ?? ANCHOR);
  return calendar.quota({ ...quota, refill: carryOver * LENGTHS });
}
calendarWindows.fields = ["every", "zone", "anchor", "carry_over"] as readonly string[];
