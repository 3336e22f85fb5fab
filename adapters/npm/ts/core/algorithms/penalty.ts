import { invalid } from "../../error.js";
import { later, since } from "../arithmetic.js";
import { blocks } from "../policy.js";
import { ADMITTED, type Beside, type PenaltyState, Rule, YEAR } from "./algorithm.js";

/** The most violations that a penalty counts: its cap is less than 2^35 times its base. */
const STRIKES_MAX = 64;

/** `amount` is the cap, `unit` the base or 0 if violations do not block, and `last` the factor. */
export class Penalty extends Rule<PenaltyState> {
  readonly code = "pn";
  override readonly size = 3;

  get name(): string {
    return this.punishes ? "penalty" : "block";
  }

  get punishes(): boolean {
    return this.unit > 0;
  }

  override get limit(): number {
    return 1;
  }

  override get window(): number {
    return this.amount;
  }

  override get retention(): number {
    return this.amount * (1 + this.#mostStrikes());
  }

  unused(): PenaltyState {
    return { strikes: 0, until: 0, length: 0 };
  }

  override load(state: PenaltyState, from: ArrayLike<number>, place: number): void {
    state.strikes = from[place]!;
    state.until = from[place + 1]!;
    state.length = from[place + 2]!;
  }

  override save({ strikes, until, length }: PenaltyState, to: Float64Array, place: number): void {
    to[place] = strikes;
    to[place + 1] = until;
    to[place + 2] = length;
  }

  ask(state: PenaltyState, now: number): number {
    const { until } = this.#current(state, now);
    return until > now ? until - now : ADMITTED;
  }

  charge(): void {}

  refund(): void {}

  overdraw(): void {}

  moveBack(state: PenaltyState, now: number): void {
    state.until = Math.min(state.until, later(now, this.#length(state)));
  }

  remaining(): number {
    return 0;
  }

  resetAfter(state: PenaltyState, now: number): number {
    const { until } = this.#current(state, now);
    return since(later(until, state.strikes * this.amount), now);
  }

  override left(state: PenaltyState, now: number): number {
    if (this.ask(state, now) > 0) return -1;
    // It has violated its limits before.
    return this.resetAfter(state, now) > 0 ? 0 : 1;
  }

  fits({ strikes, until, length }: PenaltyState, latest: number): boolean {
    return strikes <= STRIKES_MAX && until <= latest && length <= YEAR;
  }

  override fitsBeside(quotas: readonly Beside[], place: number): void {
    const { by } = quotas[place]!;
    const path = `policy.quotas[${place}]`;
    if (this.punishes && quotas.every((other) => other.by !== by || blocks(other.rule))) {
      throw invalid(path, "a penalty counts the denials of other quotas, and its dimension has none; write one");
    }
    const first = quotas.slice(0, place).find((other) => other.by === by && blocks(other.rule));
    if (first) throw invalid(path, `its dimension has a ${first.rule.name} already; leave one out: a penalty also blocks by hand`);
  }

  /** Counts a violation. Whether that changed the state. */
  violate(state: PenaltyState, now: number): boolean {
    const { strikes: before, until } = this.#current(state, now);
    if (!this.punishes || until > now) return false;
    const old = { ...state };
    const strikes = Math.min(before + 1, this.#mostStrikes());
    Object.assign(state, { strikes, until: later(now, this.#after(strikes)), length: 0 });
    return old.strikes !== strikes || old.until !== state.until || old.length !== 0;
  }

  /** Blocks by hand, or ends a block. */
  block(state: PenaltyState, now: number, span: number): void {
    const { strikes, until } = this.#current(state, now);
    const length = Math.min(span, this.amount);
    if (length > 0) {
      Object.assign(state, { strikes, until: later(now, length), length });
    } else if (strikes > 0) {
      // The violations are undone from the end of the block on. The length is the least one: a clock that steps back does not return
      // the block.
      Object.assign(state, { until: Math.min(until, now), length: 1 });
    } else {
      Object.assign(state, this.unused());
    }
  }

  #length({ strikes, length }: PenaltyState): number {
    return length > 0 ? Math.min(length, this.amount) : this.#after(strikes);
  }

  /** How long to block after so many violations. */
  #after(strikes: number): number {
    if (strikes === 0) return 0;
    let block = this.unit;
    if (this.last > 1) for (let nth = 1; nth < strikes && block < this.amount; nth++) block *= this.last;
    return Math.min(block, this.amount);
  }

  #current(state: PenaltyState, now: number): Pick<PenaltyState, "strikes" | "until"> {
    const until = Math.min(state.until, later(now, this.#length(state)));
    const undone = Math.floor(since(now, until) / this.amount);
    return { strikes: Math.max(state.strikes - undone, 0), until };
  }

  #mostStrikes(): number {
    if (!this.punishes) return 0;
    let strikes = 1;
    while (this.last > 1 && this.#after(strikes) < this.amount) strikes += 1;
    return strikes;
  }
}
