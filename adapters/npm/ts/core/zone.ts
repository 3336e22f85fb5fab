import { shown } from "../fields.js";
import { nearest } from "../nearest_name.js";
import { MINUTE } from "./algorithms/calendar_window.js";

/** Longer than any clock was set back or forward at once. */
const DAY = 86_400_000;

/** What a zone's local time is at an instant, as if it were UTC. */
type LocalTime = (instant: number) => number;

const zones = new Map<string, LocalTime>();

/** The local time of a zone. Throws a `RangeError` if this runtime has no such zone. */
export function localTimeOf(zone: string): LocalTime {
  let local = zones.get(zone);
  if (!local) zones.set(zone, (local = zone === "UTC" ? (instant) => instant : read(zone)));
  return local;
}

/** Whether this runtime has a zone. Offsets such as `+01:00`, which some take, are no names. */
export function hasZone(zone: string): boolean {
  try {
    localTimeOf(zone);
    return /^[A-Za-z]/.test(zone);
  } catch {
    return false;
  }
}

/** What is wrong with the name of a zone that this runtime does not have, which a message shows as `text`. */
export function noZone(zone: unknown, text = shown(zone)): string {
  // Runtimes of 2021 do not tell theirs.
  const known = (Intl as { supportedValuesOf?: (kind: "timeZone") => string[] }).supportedValuesOf?.("timeZone") ?? [];
  const near = typeof zone === "string" ? nearest(zone, ["UTC", ...known]) : undefined;
  return `${text} is not a time zone; ${near === undefined ? "w" : `did you mean "${near}"? W`}rite a name of the IANA database, such as "Europe/Berlin" or "UTC"`;
}

/** What is wrong with an anchor that is no date, which a message shows so. */
export function noAnchor(text: string): string {
  return `${text} is not a date; write a date such as "2026-01-31", or with a time such as "2026-01-31T06:00"`;
}

/** Reads a zone's local time from a formatter, which takes long to make. */
function read(zone: string): LocalTime {
  const [number, two] = ["numeric", "2-digit"] as const;
  const fields = { era: "short", year: number, month: number, day: number, hour: two, minute: two, second: two } as const;
  const formatter = new Intl.DateTimeFormat("en-US", { timeZone: zone, calendar: "gregory", numberingSystem: "latn", hourCycle: "h23", ...fields });
  return (instant) => {
    const parts: Record<string, string> = {};
    for (const { type, value } of formatter.formatToParts(instant)) parts[type] = value;
    const part = (name: string) => Number(parts[name]);
    const year = parts.era === "BC" ? 1 - part("year") : part("year");
    return utc(year, part("month") - 1, part("day"), part("hour"), part("minute"), part("second"));
  };
}

/** The instant of a local time, rounded up to a minute. If clocks skip it, it is as much later; of two such instants, it is the earlier. */
export function instantOf(localTime: LocalTime, local: number): number {
  const offsetAt = (instant: number) => localTime(instant) - instant;
  const before = offsetAt(local - DAY);
  const found = [before, offsetAt(local + DAY)].map((offset) => local - offset).filter((instant) => localTime(instant) === local);
  return Math.ceil(Math.min(...(found.length > 0 ? found : [local - before])) / MINUTE) * MINUTE;
}

/** `Date.UTC`, which takes the years of the first century for others. */
export function utc(year: number, month: number, day: number, hour = 0, minute = 0, second = 0): number {
  return new Date(Date.UTC(2_000, 0, 1, hour, minute, second)).setUTCFullYear(year, month, day);
}

/** How many days a month has, which counts from January of a year. */
export function daysIn(year: number, month: number): number {
  return new Date(utc(year, month + 1, 0)).getUTCDate();
}
