import { CALENDAR_WINDOW, checkNumbers, LENGTHS } from "./core/algorithms/calendar_window.js";
import { ANCHOR, anchorOf, EVERY, type Every, ZONE, ZonedCalendar } from "./core/calendar.js";
import { hasZone, noAnchor, noZone } from "./core/zone.js";
import { invalid } from "./error.js";
import { choice, Fields, shown } from "./fields.js";
import { type LoadedQuota, READY } from "./loaded_policy.js";

export type { Every } from "./core/calendar.js";
export type { LoadedQuota } from "./loaded_policy.js";

/** A quota of a calendar: see `calendarWindow`. */
export interface CalendarOptions {
  /** The most units in a window. */
  limit: number;
  /** How often a window begins. */
  every: Every;
  /** The IANA name of the time zone in which days begin, such as `Europe/Berlin`. Default: `UTC`. */
  zone?: string | undefined;
  /**
   * A local time at which a window begins: a date such as `2026-01-31`, or one with a time such as `2026-01-31T06:00`. A month without that
   * day begins its window on its last day. Default: `2001-01-01`, a Monday and the first day of a month and of a year.
   */
  anchor?: string | undefined;
  /** How many units that a window has left the next one admits in addition, at most `limit`. Default: 0. */
  carryOver?: number | undefined;
  /** What response fields show. */
  name?: string | undefined;
  /** The dimension by whose key the quota counts. Default: the request's sender. */
  by?: string | undefined;
}

/**
 * A quota that counts in the hours, days, weeks, months or years of a time zone, and not in spans of equal length:
 *
 *     import { calendarWindow } from "@tidegate/edge/calendar";
 *
 *     const month = calendarWindow({ limit: 10_000, every: "month", zone: "Europe/Berlin", anchor: "2026-01-31", carryOver: 2_000 });
 *     const tidegate = new Tidegate({ …, policy: { name: "plan", quotas: [month] } });
 *
 * A window begins at each anchor: `every: "month"` and `anchor: "2026-01-31"` begin one on 28 February and one on 31 March. A day in which
 * clocks change has 23 or 25 hours. The zone's rules are those of the runtime. In any interval, at most the limit is admitted for each window
 * that the interval touches, and once `carryOver`. A key that was not used in the window before has all of `carryOver`.
 *
 * If the zone, the anchor or the unit changes, what was used stays counted until the old window ends or the new one does.
 */
export function calendarWindow(options: CalendarOptions): LoadedQuota<"calendar_window"> {
  const fields = new Fields(options, "", ["limit", "every", "zone", "anchor", "carryOver", "name", "by"]);
  const limit = fields.need("limit", fields.whole("limit"), "a whole number");
  const every = fields.need("every", fields.read("every", choice(EVERY)), EVERY.join(" or "));
  const [zone, anchor, carryOver] = [fields.get("zone") ?? ZONE, fields.get("anchor") ?? ANCHOR, fields.whole("carryOver") ?? 0];
  if (typeof zone !== "string" || !hasZone(zone)) throw invalid("zone", noZone(zone));
  if (typeof anchor !== "string" || anchorOf(anchor) === undefined) throw invalid("anchor", noAnchor(shown(anchor)));
  checkNumbers("", limit, carryOver);
  const calendar = new ZonedCalendar(every, zone, anchor);
  const ready = { algorithm: CALENDAR_WINDOW, place: "", amount: limit, span: 0, refill: carryOver * LENGTHS, name: undefined, by: undefined };
  return { [READY]: calendar.quota(ready), name: options.name, by: options.by };
}
