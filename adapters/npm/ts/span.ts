import { invalid } from "./error.js";
import { shown } from "./fields.js";
import { nearest } from "./nearest_name.js";

/** The units of time, in milliseconds, and as words. */
const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1_000, min: 60_000, h: 3_600_000, d: 86_400_000 };
const WORDS: Readonly<Record<string, number>> = { millisecond: 1, second: 1_000, minute: 60_000, hour: 3_600_000, day: 86_400_000 };

export const UNIT_NAMES = "ms, s, min, h, d";

/** The milliseconds of a unit, such as `min` or `minutes`. Undefined if there is no such unit. */
export function unitMs(unit: string): number | undefined {
  const word = unit.replace(/s$/, "");
  return Object.hasOwn(UNITS, unit) ? UNITS[unit] : Object.hasOwn(WORDS, word) ? WORDS[word] : undefined;
}

/** A span in milliseconds, of a text such as `10 s`, `s` or `10 seconds`. `place` is the argument's name, and `right` what to write. */
export function spanOf(place: string, value: unknown, right: string): number {
  if (typeof value === "number") throw invalid(place, `${value} has no unit; write "${value} ms", or as in ${right}`);
  const [, count = "1", unit] = (typeof value === "string" && /^\s*(\d+)?\s*([a-z]+)\s*$/.exec(value)) || [];
  if (unit === undefined) throw invalid(place, `${shown(value)} is not a span; write a number with a unit, as in ${right}`);
  const ms = unitMs(unit);
  if (ms === undefined) {
    const near = nearest(unit, [...Object.keys(UNITS), ...Object.keys(WORDS)]);
    throw invalid(place, `unknown unit ${shown(unit)}; ${near === undefined ? `write one of: ${UNIT_NAMES}` : `did you mean ${shown(near)}?`}`);
  }
  const span = Number(count) * ms;
  if (Number.isSafeInteger(span)) return span;
  throw invalid(place, `${shown(value)} is too long; write at most ${Number.MAX_SAFE_INTEGER} ms`);
}
