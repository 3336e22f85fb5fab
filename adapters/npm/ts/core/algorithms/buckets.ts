import { excess, later, MAX_SKEW, MAX_UNITS, since } from "../arithmetic.js";
import { ADMITTED, type BucketState, IMPLAUSIBLE_AFTER, isUnits, NEVER, Rule, YEAR } from "./algorithm.js";

/** `last` is how much comes back in each span. */
export class TokenBucket extends Rule<BucketState> {
  readonly name: string = "token_bucket";
  readonly code: string = "tb";
  override readonly size = 2;
  readonly full = this.amount * this.unit;

  override get window(): number {
    return Math.ceil(this.full / this.last);
  }

  unused(): BucketState {
    return { level: 0, at: 0 };
  }

  override load(state: BucketState, from: ArrayLike<number>, place: number): void {
    state.level = from[place]!;
    state.at = from[place + 1]!;
  }

  override save({ level, at }: BucketState, to: Float64Array, place: number): void {
    to[place] = level;
    to[place + 1] = at;
  }

  ask(state: BucketState, now: number, cost: number): number {
    if (cost > this.amount) return NEVER;
    const over = this.#level(state, now) + cost * this.unit - this.full;
    return over <= 0 ? ADMITTED : since(state.at, now) + Math.ceil(over / this.last);
  }

  charge(state: BucketState, now: number, cost: number): void {
    this.#add(state, now, cost, this.full);
  }

  refund(state: BucketState, chargedAt: number, now: number, cost: number): void {
    const at = Math.max(now, state.at);
    // The level that drained since then may have been this charge. Only the rest is certain to be still in the bucket.
    const due = excess(cost, this.unit, since(at, chargedAt), this.last);
    [state.level, state.at] = [Math.max(this.#level(state, now) - due, 0), at];
  }

  overdraw(state: BucketState, now: number, cost: number): void {
    this.#add(state, now, cost, Math.min(MAX_UNITS, this.full + YEAR * this.last));
  }

  moveBack(state: BucketState, now: number): void {
    state.at = Math.min(state.at, later(now, MAX_SKEW));
  }

  remaining(state: BucketState, now: number): number {
    return Math.floor(Math.max(this.full - this.#level(state, now), 0) / this.unit);
  }

  resetAfter(state: BucketState, now: number): number {
    const level = this.#level(state, now);
    return level === 0 ? 0 : since(state.at, now) + Math.ceil(level / this.last);
  }

  fits({ level, at }: BucketState, latest: number): boolean {
    // Above the capacity it is a debt, or the capacity was larger.
    return isUnits(level) && at <= latest && level - this.full <= IMPLAUSIBLE_AFTER * this.last;
  }

  #level({ level, at }: BucketState, now: number): number {
    return Math.max(level - since(now, at) * this.last, 0);
  }

  #add(state: BucketState, now: number, cost: number, most: number): void {
    const level = this.#level(state, now);
    [state.level, state.at] = [Math.max(level, Math.min(level + cost * this.unit, most)), Math.max(now, state.at)];
  }
}

export class LeakyBucket extends TokenBucket {
  override readonly name = "leaky_bucket";
  override readonly code = "lb";

  override delay(state: BucketState, now: number): number {
    return this.resetAfter(state, now);
  }
}
