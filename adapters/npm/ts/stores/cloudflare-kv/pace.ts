import { later, since } from "../../core/arithmetic.js";

/** The least time between two reads of a key by an isolate, and between two writes: Workers KV rejects more than one write per second. */
export const REFRESH = 1_000;
export const SPACING = 1_000;

/** The longest pause between two attempts to write a key. */
const PAUSE_MAX = 32_000;

/** How long to wait for replication before writing a count again that a read did not find. */
const REPLICATION = 5_000;

/** A write that fails so often does not become rarer. */
const FAILED_MAX = 5;

/**
 * Whether a key may be written that was due at an instant. If that is longer ahead than any pause, the clock was set back, which must not
 * block writes until it has caught up.
 */
export function isDue(at: number, now: number): boolean {
  return at <= now || at - now > PAUSE_MAX + SPACING;
}

/**
 * Schedules the writes of one key. The store accepts one write per second from all isolates together.
 *
 * Each isolate therefore leaves time for the isolates that it knows of. The pause is random, because otherwise an isolate that writes
 * every second would keep the others out. A rejected write makes the pause longer.
 */
export class Pace {
  #lastTry: number | undefined = undefined;
  #pause = 0;
  #isThrottled = false;
  #failed = 0;

  /** When the key may be written. */
  get due(): number {
    return this.#lastTry === undefined ? 0 : later(this.#lastTry, this.#pause);
  }

  /** An attempt. On average, the next one is due after each of the `writers` has had a turn. */
  tried(now: number, writers: number, draw: bigint): void {
    const turn = SPACING * writers * 2 ** Math.max(this.#failed, Number(this.#isThrottled));
    const pause = Math.min(turn / 2 + Number(draw % BigInt(turn)), PAUSE_MAX);
    this.#lastTry = now;
    this.#pause = Math.max(writers === 1 ? pause + SPACING / 2 : pause, SPACING);
  }

  succeeded(): void {
    [this.#isThrottled, this.#failed] = [false, 0];
  }

  /**
   * Another isolate wrote in the same second, or the store has failed. The pause already allows for known isolates, so repeated rejections
   * count once.
   */
  failed(isThrottled: boolean): void {
    if (isThrottled) this.#isThrottled = true;
    else this.#failed = Math.min(this.#failed + 1, FAILED_MAX);
  }

  /** Whether the last write is so long ago that a count that a read did not find is lost. */
  isSettled(now: number): boolean {
    const last = this.#lastTry;
    return last === undefined || since(now, last) >= REPLICATION || since(last, now) > PAUSE_MAX;
  }
}
