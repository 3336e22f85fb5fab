import { since } from "../../core/arithmetic.js";

/** After how many failures in a row a store is not asked, and for how long. */
const FAILURES_MAX = 3;
const PAUSE_MS = 1_000;

/** The failures since the last answer. */
interface Outage {
  readonly since: number;
  failures: number;
  /** When the store was asked last. */
  asked: number;
}

/** Decides when to ask a store that has failed, on the caller's clock. */
export class Breaker {
  #outage: Outage | undefined;

  /** Whether the store may be asked. Once it has failed too often, one caller in each pause may. */
  mayAsk(now: number): boolean {
    const outage = this.#outage;
    if (!outage || outage.failures < FAILURES_MAX) return true;
    if (this.asksAfter(now) > 0) return false;
    outage.asked = now;
    return true;
  }

  /**
   * How long until the store is asked again. Requests at the same time have slightly different clocks, so one that is a little behind
   * waits, too. A clock that was set back by more than the pause does not.
   */
  asksAfter(now: number): number {
    const asked = this.#outage?.asked ?? -PAUSE_MS;
    return Math.abs(now - asked) < PAUSE_MS ? PAUSE_MS - since(now, asked) : 0;
  }

  failed(now: number): void {
    const outage = (this.#outage ??= { since: now, failures: 0, asked: now });
    outage.failures += 1;
    outage.asked = Math.max(outage.asked, now);
  }

  answered(): void {
    this.#outage = undefined;
  }

  /** How long the store has been down. */
  downFor(now: number): number {
    return this.#outage ? since(now, this.#outage.since) : 0;
  }
}
