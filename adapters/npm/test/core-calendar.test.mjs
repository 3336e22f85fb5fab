// Windows of calendars begin where those of the core do, by `Intl` here and by the zone data that the core contains there. All zones that both
// know are compared, in 40 years. A failure names the seed; `TIDEGATE_SEED` in the environment plays it again.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERY, ZonedCalendar } from "../modules/core/calendar.js";
import { hasZone, localTimeOf } from "../modules/core/zone.js";
import { Chance, seeded, started } from "./reference.mjs";

const SEED = seeded();
const [FIRST, LAST] = [Date.UTC(1996, 0, 1), Date.UTC(2036, 0, 1)];
const [MINUTE, DAY, WEEK, MONTH] = [60_000, 86_400_000, 604_800_000, 2_629_746_000];

/**
 * Zones whose clocks the database has changed in versions of 2026, which not every runtime has: Node.js 20 has 2025c. They are compared before
 * that.
 */
const CHANGED = [
  ["2022-03-01", "Moldova changes its clocks when the EU does", ["Europe/Chisinau", "Europe/Tiraspol"]],
  ["2026-08-24", "Morocco stays at UTC", ["Africa/Casablanca", "Africa/El_Aaiun"]],
  ["2026-08-24", "British Columbia stays at UTC-7", ["America/Vancouver", "Canada/Pacific"]],
  ["2026-08-24", "Alberta and the Northwest Territories stay at UTC-6", ["America/Edmonton", "America/Inuvik", "America/Yellowknife", "Canada/Mountain"]],
  ["2026-08-24", "Manitoba stays at UTC-5", ["America/Rainy_River", "America/Winnipeg", "Canada/Central"]],
  ["2026-08-24", "Cuba stays at UTC-4", ["America/Havana", "Cuba"]],
];
const untilOf = (zone) => Math.min(LAST, ...CHANGED.flatMap(([from, , some]) => (some.includes(zone) ? Date.parse(from) : [])));

const glue = await started("memory");

function left(length) {
  return new TextDecoder().decode(new Uint8Array(glue.memory().buffer, glue.leftAt(), length).slice());
}

function write(text) {
  const bytes = Buffer.from(text);
  const at = glue.bytesAt(bytes.length);
  new Uint8Array(glue.memory().buffer).set(bytes, at);
  return bytes.length;
}

/** The three boundaries around each instant, by the core. */
function ofCore(every, zone, anchor, instants) {
  for (const text of [every, zone, anchor, instants.join()]) glue.push(write(text));
  const text = left(glue.boundaries());
  if (!/^[\d,]+$/.test(text)) throw new Error(text);
  const numbers = text.split(",").map(Number);
  return instants.map((_, nth) => numbers.slice(3 * nth, 3 * nth + 3));
}

const ofPackage = (every, zone, anchor, instants) => {
  const calendar = new ZonedCalendar(every, zone, anchor);
  return instants.map((instant) => {
    const { start, end, next } = calendar.span(instant);
    return [start, end, next];
  });
};

const iso = (instant) => new Date(instant).toISOString();
const known = left(glue.zones()).split(",");
const zones = known.filter((zone) => hasZone(zone));

/** When a zone's offset changes, to a week. */
function changesOf(zone) {
  const localTime = localTimeOf(zone);
  const found = [];
  let before;
  for (let instant = FIRST; instant < LAST; instant += WEEK) {
    const offset = localTime(instant) - instant;
    if (before !== undefined && offset !== before) found.push(instant);
    before = offset;
  }
  return found;
}

/** The minute of the change in the week that ends then. */
function minuteOf(zone, instant) {
  const localTime = localTimeOf(zone);
  const offset = (at) => localTime(at) - at;
  let [low, high] = [instant - WEEK, instant];
  while (high - low > MINUTE) {
    const middle = Math.floor((low + high) / 2 / MINUTE) * MINUTE;
    if (offset(middle) === offset(low)) low = middle;
    else high = middle;
  }
  return high;
}

/** Days that begin when a zone's clocks change, by the time that they then show, and by that after the change: by those times, all instants. */
function daysOf(zone) {
  const localTime = localTimeOf(zone);
  const found = new Map();
  for (const change of changesOf(zone).map((week) => minuteOf(zone, week))) {
    for (const local of [localTime(change - MINUTE) + MINUTE, localTime(change)]) {
      const time = iso(local).slice(11, 16);
      found.set(time, [...(found.get(time) ?? []), change - MINUTE]);
    }
  }
  return found;
}

test("both know the zones", () => {
  assert.ok(zones.length > 400, `${zones.length} of ${known.length}`);
  const own = Intl.supportedValuesOf("timeZone").filter((zone) => !known.includes(zone));
  for (const [from, why, some] of CHANGED) console.log(`compared until ${from}: ${some.join(", ")}, because in newer data, ${why}`);
  console.log(`compared: ${zones.length} zones; only the core knows ${known.filter((zone) => !zones.includes(zone)).join(", ") || "none"}; only this runtime knows ${own.join(", ") || "none"}`);
});

test("in each zone, months begin at the same instants, and so do days at each change of its clocks", () => {
  const chance = new Chance(SEED);
  const [wrong, seen] = [[], new Set()];
  for (const zone of zones) {
    const until = untilOf(zone);
    const odd = `2001-01-${String(1 + chance.below(31)).padStart(2, "0")}${chance.from(["", "", "T00:30", "T01:30", "T02:00", "T02:30", "T03:00", "T23:59"])}`;
    // Each window tells of three boundaries.
    const months = Array.from({ length: 160 }, (_, nth) => FIRST + 3 * nth * MONTH);
    const some = Array.from({ length: 10 }, () => FIRST + chance.below(LAST - FIRST));
    const days = [...daysOf(zone)].map(([time, instants]) => ["day", `2001-01-01T${time}`, instants]);
    for (const [every, anchor, instants] of [["month", odd, months], [chance.from(EVERY), odd, some], ...days]) {
      const compared = instants.filter((instant) => instant < until);
      if (compared.length === 0) continue;
      const [ours, theirs] = [ofPackage(every, zone, anchor, compared), ofCore(every, zone, anchor, compared)];
      compared.forEach((instant, nth) => {
        seen.add(every);
        if (String(ours[nth]) !== String(theirs[nth]) && ours[nth].at(-1) < until) {
          wrong.push(`${zone}, each ${every} from ${anchor}, at ${iso(instant)}: ${ours[nth].map(iso)} and in the core ${theirs[nth].map(iso)}`);
        }
      });
    }
  }
  assert.deepEqual(wrong.slice(0, 40), [], `seed ${SEED}: ${wrong.length} differ`);
  assert.equal(seen.size, EVERY.length);
});

test("a clock at the epoch, odd anchors and years of former centuries have the same windows", () => {
  const chance = new Chance(SEED + 1);
  for (let nth = 0; nth < 2_000; nth++) {
    const zone = chance.from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Africa/Monrovia", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns", "Pacific/Kiritimati", "Africa/Cairo"]);
    const two = (least, most) => String(least + chance.below(most - least + 1)).padStart(2, "0");
    const anchor = `${chance.from(["2001", "1904", "1800", "2026", "2024", "2100"])}-${two(1, 12)}-${two(1, 28)}${chance.once(2) ? "" : `T${two(0, 23)}:${two(0, 59)}`}`;
    const every = chance.from(EVERY);
    const instants = [chance.from([0, 1, 59_999, DAY, 31 * DAY, Date.UTC(1972, 0, 7), Date.UTC(2026, 2, 29, 1)]) + chance.below(3)];
    const place = `seed ${SEED}: each ${every} in ${zone} from ${anchor} at ${instants}`;
    assert.deepEqual(ofPackage(every, zone, anchor, instants), ofCore(every, zone, anchor, instants), place);
  }
});
