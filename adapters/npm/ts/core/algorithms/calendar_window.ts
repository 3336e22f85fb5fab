import { invalid } from "../../error.js";
import { later, MAX_INSTANT, MAX_SKEW, MAX_UNITS, since } from "../arithmetic.js";
import type { Part, ReadyQuota } from "../policy.js";
import { ADMITTED, type CalendarState, isUnits, NEVER, Rule } from "./algorithm.js";
import { checkedAmount } from "./make_algorithm.js";

/** The place of the algorithm among all: see `ReadyQuota`. */
export const CALENDAR_WINDOW = 8;

/** The unit of a calendar's boundaries, which are whole minutes, in milliseconds. */
export const MINUTE = 60_000;

/** A number of a rule holds a length in minutes, of which the longest window has fewer than so many, and another number times this. */
export const LENGTHS = 2 ** 20;

/** The lengths from which on a window is no more one of an hour, a day, a week and a month, in minutes. */
const LONGER = [720, 5_760, 20_160, 100_000] as const;

/** No more units are carried over. */
const CARRIED_MAX = 2 ** 32 - 1;

/** Throws what is wrong with a limit and what is carried over. */
export function checkNumbers(place: string, limit: number, carryOver: number): void {
  checkedAmount(place, "limit", limit, MAX_UNITS);
  const most = Math.min(limit, CARRIED_MAX);
  if (carryOver > most) throw invalid(`${place}carryOver`, `${carryOver} is out of range; write a whole number from 0 to ${most}`);
}

/** Windows that are given by the numbers of their rule, and that no zone moves on. */
export const GIVEN_WINDOWS: Part = {
  rule: ({ amount, span, refill }: ReadyQuota, place: string): CalendarWindow => {
    const start = Math.floor(span / LENGTHS) * MINUTE;
    if (start > MAX_INSTANT) throw invalid(`${place}start`, `${start} lies past ${MAX_INSTANT} ms since the epoch`);
    checkNumbers(place, amount, Math.floor(refill / LENGTHS));
    [span, refill].forEach((number, nth) => {
      if (number % LENGTHS === 0) throw invalid(place + ["first", "next"][nth], `0 ms is no window's length; write whole minutes, from 1 to ${LENGTHS - 1}`);
    });
    return new CalendarWindow(amount, span, refill);
  },
  at: (policy) => policy,
  described: (rule) => (rule as CalendarWindow).described(""),
};

/** The rule of a window and the end of the next one. */
export function windowOf(limit: number, start: number, end: number, next: number, carryOver: number): CalendarWindow {
  return new CalendarWindow(limit, (start / MINUTE) * LENGTHS + (end - start) / MINUTE, carryOver * LENGTHS + (next - end) / MINUTE);
}

/**
 * At most `amount` units in a window of a calendar. It knows one window and the next one, and takes those before for as long as the first, and
 * those after for as long as the next. `unit` is the start of the first in minutes, times 2^20, plus its length in minutes. `last` is how many
 * unused units are carried over, times 2^20, plus the length of the next window.
 */
export class CalendarWindow extends Rule<CalendarState> {
  readonly name = "calendar_window";
  readonly code = "cw";
  override readonly size = 3;
  override readonly carryOver = Math.floor(this.last / LENGTHS);
  readonly #start = Math.floor(this.unit / LENGTHS) * MINUTE;
  readonly #first = (this.unit % LENGTHS) * MINUTE;
  readonly #next = (this.last % LENGTHS) * MINUTE;

  override get shape(): string {
    const minutes = this.unit % LENGTHS;
    return `cw${"hdwmy"[LONGER.filter((longer) => minutes >= longer).length]}`;
  }

  override get window(): number {
    return this.#first;
  }

  override get retention(): number {
    return Math.max(this.#first, this.#next) * (this.carryOver > 0 ? 2 : 1);
  }

  unused(): CalendarState {
    return { end: 0, used: 0, carried: 0 };
  }

  override load(state: CalendarState, from: ArrayLike<number>, place: number): void {
    state.end = from[place]!;
    state.used = from[place + 1]!;
    state.carried = from[place + 2]!;
  }

  override save({ end, used, carried }: CalendarState, to: Float64Array, place: number): void {
    to[place] = end;
    to[place + 1] = used;
    to[place + 2] = carried;
  }

  override most(state: CalendarState, now: number): number {
    return this.amount + this.#current(state, now).carried;
  }

  ask(state: CalendarState, now: number, cost: number): number {
    if (cost > this.amount) return NEVER;
    const current = this.#current(state, now);
    return current.used + cost <= this.amount + current.carried ? ADMITTED : since(current.end, now);
  }

  /** The next window has what this one leaves to it, and the one after it the most. */
  override waitFor(state: CalendarState, now: number, units: number): number {
    const current = this.#current(state, now);
    const left = this.#room(current);
    if (units <= left) return 0;
    if (units > this.amount + this.carryOver || current.end === MAX_INSTANT) return NEVER;
    return since(units <= this.amount + Math.min(left, this.carryOver) ? current.end : this.#endOf(current.end), now);
  }

  charge(state: CalendarState, now: number, cost: number): void {
    this.#move(state, now);
    this.#add(state, cost, this.amount + state.carried);
  }

  refund(state: CalendarState, chargedAt: number, now: number, cost: number): void {
    this.#move(state, now);
    if (this.#endOf(chargedAt) === state.end) state.used = Math.max(state.used - cost, 0);
  }

  overdraw(state: CalendarState, now: number, cost: number): void {
    this.#move(state, now);
    this.#add(state, cost, MAX_UNITS);
  }

  moveBack(state: CalendarState, now: number): void {
    state.end = Math.min(state.end, this.#endOf(later(now, MAX_SKEW)));
  }

  remaining(state: CalendarState, now: number): number {
    return this.#room(this.#current(state, now));
  }

  resetAfter(state: CalendarState, now: number): number {
    const current = this.#current(state, now);
    const { end, used, carried } = current;
    if (used === 0 && carried === this.carryOver) return 0;
    // What is carried into the next window may be less than an unused key has.
    return since(this.#room(current) >= this.carryOver ? end : this.#endOf(end), now);
  }

  fits({ end, used, carried }: CalendarState, latest: number): boolean {
    return end <= latest && isUnits(used) && isUnits(carried);
  }

  /** The rule in words, with those of its calendar. */
  described(calendar: string): string {
    const [from, to] = [this.#start, this.#start + this.#first].map((at) => new Date(at).toISOString().replace(":00.000", ""));
    const carried = this.carryOver > 0 ? `, and up to ${this.carryOver} that the one before has left` : "";
    return `${this.name} of ${this.limit}${calendar}, now from ${from} to ${to}${carried}`;
  }

  override startOf(now: number): number {
    const second = this.#start + this.#first;
    if (now < this.#start) return since(this.#endOf(now), this.#first);
    return now < second ? this.#start : second + this.#next * Math.floor((now - second) / this.#next);
  }

  /** The state in the window of an instant. A window that ends at the last instant never ends. */
  #current(state: CalendarState, now: number): CalendarState {
    if (now < state.end || state.end === MAX_INSTANT) return state;
    // If the window before was not used at all, all of it is carried, as for a key that has never come.
    const carried = state.end < this.startOf(now) ? this.carryOver : Math.min(this.#room(state), this.carryOver);
    return { end: this.#endOf(now), used: 0, carried };
  }

  #move(state: CalendarState, now: number): void {
    Object.assign(state, this.#current(state, now));
  }

  #add(state: CalendarState, cost: number, most: number): void {
    state.used = Math.max(state.used, Math.min(state.used + cost, most));
  }

  #room({ used, carried }: CalendarState): number {
    return since(this.amount + carried, used);
  }

  #endOf(now: number): number {
    const [start, first] = [this.#start, this.#first];
    if (now < start) return start - Math.floor((start - now - 1) / first) * first;
    return later(this.startOf(now), now < start + first ? first : this.#next);
  }
}
