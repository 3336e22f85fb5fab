import { MAX_UNITS } from "../arithmetic.js";

// The algorithms of `tidegate-core`, on doubles. They are held to it by `test/core.test.mjs`: the same questions get the same answers.

/** What `ask` returns in place of a wait, which may be 0: no instant is later than the last one. */
export const ADMITTED = -1;
export const BUSY = -2;
export const NEVER = -3;

/** The longest block, and the longest debt of a bucket: a year. */
export const YEAR = 31_536_000_000;

/** No clock is wrong by so much: 20 years. */
export const IMPLAUSIBLE_AFTER = 20 * YEAR;

/** The state of one quota. */
export type State = WindowState | SlidingState | LogState | BucketState | SlotsState | PenaltyState | CalendarState | BalanceState;

export interface WindowState {
  start: number;
  used: number;
}

export interface SlidingState {
  start: number;
  previous: number;
  current: number;
}

export interface LogState {
  entries: { at: number; units: number }[];
}

export interface BucketState {
  level: number;
  at: number;
}

export interface SlotsState {
  slots: { id: string; at: number; cost: number }[];
}

export interface PenaltyState {
  strikes: number;
  until: number;
  /** How long the block is that was set by hand, or 0. */
  length: number;
}

export interface CalendarState {
  end: number;
  used: number;
  /** What was carried over from the window before. */
  carried: number;
}

export interface BalanceState {
  /** What was charged beyond what was granted. If it is not 0, there are no lots. */
  debt: number;
  /** What is left, in order of expiry. */
  lots: Lot[];
}

/** Units that expire together. */
export interface Lot {
  units: number;
  expires: number;
}

/** A quota of a policy, for those beside it. */
export interface Beside {
  /** The name of its dimension. */
  readonly by: string;
  readonly rule: Rule;
}

/** An algorithm with its numbers. */
export abstract class Rule<S extends State = State> {
  /** Its name, as in a policy. */
  abstract readonly name: string;
  /** Its short name, in keys and stored states. */
  abstract readonly code: string;
  // What a constructor sets is declared, so that there is no other code for it.
  declare readonly amount: number;
  declare readonly unit: number;
  declare readonly last: number;

  /** `amount` is its limit, a bucket's capacity or a penalty's cap, `unit` its span, and `last` one more number: see `numbers`. */
  constructor(amount: number, unit: number, last: number) {
    this.amount = amount;
    this.unit = unit;
    this.last = last;
  }

  /** The largest cost that can be admitted. */
  get limit(): number {
    return this.amount;
  }

  /** What a stored state keeps its meaning by, as a part of its key. */
  get shape(): string {
    return this.code + this.unit;
  }

  /** The most that is admitted now, as a decision tells it. */
  most(_state: S, _now: number): number {
    return this.limit;
  }

  /** The span in which an unused quota admits its limit, in milliseconds. */
  get window(): number {
    return this.unit;
  }

  /** How long a state can matter, in milliseconds. */
  get retention(): number {
    return this.window;
  }

  /** When the window of an instant begins, for rules that have windows. */
  startOf(now: number): number {
    return now - (now % this.unit);
  }

  /** What the field `RateLimit-Policy` says that it counts, unless it is units of its window. */
  declare readonly counted?: string;

  /** How many unused units of a window the next one has in addition. */
  readonly carryOver: number = 0;

  /** How many numbers a state has. 0 if it is longer, the more requests it counts. */
  readonly size: number = 0;

  /**
   * Whether time frees nothing of it: a slot is released, and a balance is granted. Nobody knows when it is unused again, a denied request
   * takes nothing of it, and a key with some of it is not forgotten.
   */
  readonly isHeld: boolean = false;

  abstract unused(): S;
  /** How long until this cost is admitted, or one of the numbers above. */
  abstract ask(state: S, now: number, cost: number): number;
  /** Charges a cost that was admitted, or a denial. */
  abstract charge(state: S, now: number, cost: number, id: string): void;
  abstract refund(state: S, chargedAt: number, now: number, cost: number): void;
  /** Charges beyond the limit. */
  abstract overdraw(state: S, now: number, cost: number): void;
  /** Moves back what a wrong clock has put too far into the future. */
  abstract moveBack(state: S, now: number): void;
  abstract remaining(state: S, now: number): number;
  /** How long until the quota is unused again. */
  abstract resetAfter(state: S, now: number): number;
  /** Whether this policy can have written the state by `latest`. */
  abstract fits(state: S, latest: number): boolean;

  /** Which part of the limit is left. -1 for what must not be forgotten: a slot, a balance or a block. */
  left(state: S, now: number): number {
    return this.remaining(state, now) / this.limit;
  }

  /** Reads a state of some numbers, which are at a place of these. */
  load(_state: S, _from: ArrayLike<number>, _place: number): void {}

  /** Writes one. */
  save(_state: S, _to: Float64Array, _place: number): void {}

  /** The numbers of a state that has one number and then any count of pairs, and the state of such numbers. Only a balance's is so. */
  numbersOf?(state: S): number[];
  stateOf?(numbers: readonly number[]): S;

  /** How long until a window has so many units left, or `NEVER`, if that may be more than its limit. */
  waitFor?(state: S, now: number, units: number): number;

  /** Throws if the rule at this place of a policy cannot be beside the others. */
  fitsBeside?(quotas: readonly Beside[], place: number): void;

  /** Those with parts of their own copy these, too. */
  copy(state: S): S {
    return { ...state };
  }

  /** How long to delay a request that is admitted. */
  delay(_state: S, _now: number): number {
    return 0;
  }
}

/** Whether a stored number of units can be one. */
export const isUnits = (units: number) => units <= MAX_UNITS;
