import { exceeds, later, MAX_SKEW, MAX_UNITS, share, since } from "../arithmetic.js";
import { ADMITTED, isUnits, NEVER, Rule, type SlidingState, type WindowState } from "./algorithm.js";

/** The start of the window of an instant. It is usually the known one, and a remainder of doubles takes long. */
function startOf(now: number, unit: number, known = 0): number {
  return now >= known && now - known < unit ? known : now - (now % unit);
}

export class FixedWindow extends Rule<WindowState> {
  readonly name = "fixed_window";
  readonly code = "fw";
  override readonly size = 2;

  unused(): WindowState {
    return { start: 0, used: 0 };
  }

  override load(state: WindowState, from: ArrayLike<number>, place: number): void {
    state.start = from[place]!;
    state.used = from[place + 1]!;
  }

  override save({ start, used }: WindowState, to: Float64Array, place: number): void {
    to[place] = start;
    to[place + 1] = used;
  }

  ask({ start, used }: WindowState, now: number, cost: number): number {
    if (cost > this.amount) return NEVER;
    if (startOf(now, this.unit, start) > start) return ADMITTED;
    return used + cost <= this.amount ? ADMITTED : start + this.unit - now;
  }

  charge(state: WindowState, now: number, cost: number): void {
    this.#add(state, now, cost, this.amount);
  }

  refund(state: WindowState, chargedAt: number, now: number, cost: number): void {
    this.#move(state, now);
    if (startOf(chargedAt, this.unit) === state.start) state.used = Math.max(state.used - cost, 0);
  }

  overdraw(state: WindowState, now: number, cost: number): void {
    this.#add(state, now, cost, MAX_UNITS);
  }

  moveBack(state: WindowState, now: number): void {
    const latest = later(now, MAX_SKEW);
    if (state.start > latest) state.start = startOf(latest, this.unit);
  }

  remaining({ start, used }: WindowState, now: number): number {
    return startOf(now, this.unit, start) > start ? this.amount : Math.max(this.amount - used, 0);
  }

  resetAfter({ start, used }: WindowState, now: number): number {
    return startOf(now, this.unit, start) > start || used === 0 ? 0 : start + this.unit - now;
  }

  fits({ start, used }: WindowState, latest: number): boolean {
    return start % this.unit === 0 && start <= latest && isUnits(used);
  }

  #add(state: WindowState, now: number, cost: number, most: number): void {
    this.#move(state, now);
    state.used = Math.max(state.used, Math.min(state.used + cost, most));
  }

  #move(state: WindowState, now: number): void {
    const start = startOf(now, this.unit, state.start);
    if (start > state.start) [state.start, state.used] = [start, 0];
  }
}

export class SlidingWindow extends Rule<SlidingState> {
  readonly name = "sliding_window";
  readonly code = "sw";
  override readonly size = 3;

  override get retention(): number {
    return 2 * this.unit;
  }

  unused(): SlidingState {
    return { start: 0, previous: 0, current: 0 };
  }

  override load(state: SlidingState, from: ArrayLike<number>, place: number): void {
    state.start = from[place]!;
    state.previous = from[place + 1]!;
    state.current = from[place + 2]!;
  }

  override save({ start, previous, current }: SlidingState, to: Float64Array, place: number): void {
    to[place] = start;
    to[place + 1] = previous;
    to[place + 2] = current;
  }

  ask(state: SlidingState, now: number, cost: number): number {
    if (cost > this.amount) return NEVER;
    const start = Math.max(startOf(now, this.unit, state.start), state.start);
    const [previous, current, left] = [this.#previous(state, start), start > state.start ? 0 : state.current, this.#left(start, now)];
    const room = this.amount - (current + cost);
    if (room >= 0 && !exceeds(previous, left, room, this.unit)) return ADMITTED;
    // The request fits before this window ends, when the weight of the previous one has fallen far enough, or in the next one, when
    // the weight of this one has.
    const wait = room >= 0 ? left - share(room, this.unit, previous) : left + this.unit - Math.min(share(this.amount - cost, this.unit, current), this.unit);
    return since(start, now) + wait;
  }

  charge(state: SlidingState, now: number, cost: number): void {
    this.#add(state, now, cost, this.amount);
  }

  refund(state: SlidingState, chargedAt: number, now: number, cost: number): void {
    this.#move(state, now);
    const chargedIn = startOf(chargedAt, this.unit);
    if (chargedIn === state.start) state.current = Math.max(state.current - cost, 0);
    else if (state.start - chargedIn === this.unit) state.previous = Math.max(state.previous - cost, 0);
  }

  overdraw(state: SlidingState, now: number, cost: number): void {
    this.#add(state, now, cost, MAX_UNITS);
  }

  moveBack(state: SlidingState, now: number): void {
    const latest = later(now, MAX_SKEW);
    if (state.start > latest) state.start = startOf(latest, this.unit);
  }

  remaining(state: SlidingState, now: number): number {
    const start = Math.max(startOf(now, this.unit, state.start), state.start);
    const [previous, current] = [this.#previous(state, start), start > state.start ? 0 : state.current];
    // What is left of the previous window, rounded up.
    const weight = previous - share(previous, this.unit - this.#left(start, now), this.unit);
    return Math.max(this.amount - (current + weight), 0);
  }

  resetAfter(state: SlidingState, now: number): number {
    const start = Math.max(startOf(now, this.unit, state.start), state.start);
    const current = start > state.start ? 0 : state.current;
    if (current === 0 && this.#previous(state, start) === 0) return 0;
    return since(start, now) + this.#left(start, now) + (current === 0 ? 0 : this.unit);
  }

  fits({ start, previous, current }: SlidingState, latest: number): boolean {
    return start % this.unit === 0 && start <= latest && isUnits(previous) && isUnits(current);
  }

  /** What was used in the window before the one that starts then. */
  #previous(state: SlidingState, start: number): number {
    if (start === state.start) return state.previous;
    return start - state.start === this.unit ? state.current : 0;
  }

  #left(start: number, now: number): number {
    return this.unit - since(now, start);
  }

  #add(state: SlidingState, now: number, cost: number, most: number): void {
    this.#move(state, now);
    state.current = Math.max(state.current, Math.min(state.current + cost, most));
  }

  #move(state: SlidingState, now: number): void {
    const start = startOf(now, this.unit, state.start);
    if (start > state.start) [state.start, state.previous, state.current] = [start, this.#previous(state, start), 0];
  }
}
