import { invalid } from "./error.js";
import { shown, unknown } from "./fields.js";

/** The units of time, and as words, which may be plural, and their milliseconds. */
const UNITS = ["ms", "s", "min", "h", "d", "millisecond", "second", "minute", "hour", "day"];
const MS = [1, 1_000, 60_000, 3_600_000, 86_400_000];

export const UNIT_NAMES = "ms, s, min, h, d";

/** The milliseconds of a unit, such as `min` or `minutes`. Undefined if there is no such unit. */
export function unitMs(unit: string): number | undefined {
  const at = UNITS.indexOf(unit);
  return MS[(at < 0 ? UNITS.indexOf(unit.replace(/s$/, ""), MS.length) : at) % MS.length];
}

/**
 * A span in milliseconds, of a text such as `10 s`, `s` or `10 seconds`. `place` is the argument's name, and `right` what to write. It may be longer
 * than any algorithm takes.
 */
export function spanOf(place: string, value: unknown, right: string): number {
  if (typeof value === "number") throw invalid(place, `${value} has no unit; write "${value} ms", or as in ${right}`);
  const [, count = "1", unit] = (typeof value === "string" && /^\s*(\d+)?\s*([a-z]+)\s*$/.exec(value)) || [];
  if (unit === undefined) throw invalid(place, `${shown(value)} is not a span; write a number with a unit, as in ${right}`);
  const ms = unitMs(unit);
  if (ms === undefined) throw invalid(place, unknown("unit", unit, UNITS));
  return Math.min(Number(count) * ms, Number.MAX_SAFE_INTEGER);
}
