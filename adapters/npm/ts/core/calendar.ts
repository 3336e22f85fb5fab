import { type CalendarWindow as Window, LENGTHS, windowOf } from "./algorithms/calendar_window.js";
import type { Rule } from "./algorithms/algorithm.js";
import type { Part, Policy, ReadyPolicy, ReadyQuota } from "./policy.js";
import { daysIn, instantOf, localTimeOf, utc } from "./zone.js";

// Where the windows of a calendar begin, which is `calendar.rs` of the core. `test/calendar.test.mjs` holds it to that.

/** The units of a calendar: each has so many days, or so many months. */
const UNITS = { hour: 0, day: 1, week: 7, month: 1, year: 12 } as const;

/** How often a window begins. */
export type Every = keyof typeof UNITS;

export const EVERY = Object.keys(UNITS) as Every[];

/** The zone and the anchor of a calendar without them. The anchor is a Monday, and the first day of a month and of a year. */
export const [ZONE, ANCHOR] = ["UTC", "2001-01-01"] as const;

const DAY = 86_400_000;
const HOUR = 3_600_000;

/** A window, and the end of the next one. */
export interface Span {
  readonly start: number;
  readonly end: number;
  readonly next: number;
}

/** A policy in the windows of an instant. It stays the same from `start` to before `end`. */
interface Resolved extends Omit<Span, "next"> {
  readonly policy: Policy;
}

/** The last one of each policy. */
const resolved = new WeakMap<ReadyPolicy, Resolved>();

/** An anchor as a local time, as if it were UTC. Undefined if there is no such date. */
export function anchorOf(text: string): number | undefined {
  const [, year, month, day, hour = 0, minute = 0] = (/^(\d{4})-(\d\d)-(\d\d)(?:T([01]\d|2[0-3]):([0-5]\d))?$/.exec(text) ?? []).map((digits) => digits && Number(digits)) as number[];
  const isDate = month !== undefined && month >= 1 && month <= 12 && day! >= 1 && day! <= daysIn(year!, month - 1);
  return isDate ? utc(year!, month - 1, day!, hour, minute) : undefined;
}

/** The windows of a calendar, whose boundaries are so many units after an anchor in the local time of a zone. */
export class ZonedCalendar implements Part {
  readonly #anchor: number;
  /** The window of the last instant. */
  #span: Span | undefined;

  /** Throws a `RangeError` if this runtime has no such zone. */
  constructor(
    readonly every: Every,
    readonly zone: string,
    readonly anchor: string,
  ) {
    const local = anchorOf(anchor)!;
    const localTime = localTimeOf(zone);
    this.#anchor = every === "hour" ? instantOf(localTime, local) : local;
  }

  /** The rule in the first window. A carry-over above the limit is the limit. */
  rule({ amount, refill }: ReadyQuota): Window {
    return ruleOf(amount, Math.floor(refill / LENGTHS), this.span(0));
  }

  /** A quota in the first window, whose `refill` has what is carried over. */
  quota(ready: ReadyQuota): ReadyQuota {
    const { unit, last } = this.rule(ready);
    return { ...ready, span: unit, refill: last, part: this };
  }

  at(policy: Policy, now: number): Policy {
    const { parts, sole } = policy;
    const known = resolved.get(parts);
    if (known && known.start <= now && now < known.end) return known.policy;
    let [start, end] = [0, Infinity];
    const quotas = policy.quotas.map((quota) => {
      if (!quota.part?.at) return quota;
      const { amount, carryOver } = quota.rule as Window;
      const span = (quota.part as ZonedCalendar).span(now);
      [start, end] = [Math.max(start, span.start), Math.min(end, span.end)];
      return { ...quota, rule: ruleOf(amount, carryOver, span) };
    });
    const changed = { text: `${JSON.stringify(parts)}@${start}`, quotas, sole: sole && quotas[0]!.rule, retention: Math.max(...quotas.map(({ rule }) => rule.retention)) };
    const found = Object.assign(Object.create(Object.getPrototypeOf(policy) as object) as Policy, policy, changed);
    found.balance?.covers(quotas.map(({ rule }) => rule));
    resolved.set(parts, { policy: found, start, end });
    return found;
  }

  described(rule: Rule): string {
    return (rule as Window).described(` each ${this.every} in ${this.zone}, from ${this.anchor}`);
  }

  /** The window of an instant, or the first one from the epoch on. */
  span(now: number): Span {
    const known = this.#span;
    if (known && known.start <= now && now < known.end) return known;
    let nth = this.#guess(now);
    while (this.#boundary(nth) > now) nth--;
    while (this.#boundary(nth + 1) <= now) nth++;
    let start = this.#boundary(nth);
    // A day that a zone has left out has no window.
    const after = (boundary: number) => {
      while (this.#boundary(nth) <= boundary) nth++;
      return this.#boundary(nth);
    };
    if (start < 0) start = after(-1);
    const end = after(start);
    return (this.#span = { start, end, next: after(end) });
  }

  /** Which boundary is near an instant. */
  #guess(instant: number): number {
    const { every } = this;
    if (every === "hour") return Math.floor((instant - this.#anchor) / HOUR);
    const local = localTimeOf(this.zone)(instant);
    if (every === "day" || every === "week") return Math.floor((local - this.#anchor) / (UNITS[every] * DAY));
    return Math.floor((monthOf(local) - monthOf(this.#anchor)) / UNITS[every]);
  }

  /** The instant of the n-th boundary. It is always counted from the anchor: after the 28 February comes the 31 March. */
  #boundary(nth: number): number {
    const { every, zone } = this;
    const anchor = this.#anchor;
    if (every === "hour") return anchor + nth * HOUR;
    const localTime = localTimeOf(zone);
    if (every === "day" || every === "week") return instantOf(localTime, anchor + nth * UNITS[every] * DAY);
    const month = monthOf(anchor) + nth * UNITS[every];
    const day = Math.min(new Date(anchor).getUTCDate(), daysIn(0, month));
    return instantOf(localTime, utc(0, month, day) + (anchor - DAY * Math.floor(anchor / DAY)));
  }
}

function ruleOf(limit: number, carryOver: number, { start, end, next }: Span): Window {
  return windowOf(limit, start, end, next, Math.min(carryOver, limit));
}

/** How many months a local time is after the year 0. */
function monthOf(local: number): number {
  const date = new Date(local);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}
