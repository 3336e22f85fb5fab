/** The most calls that wait for one key. */
const WAITING_MAX = 1_024;

/**
 * Lets the calls for a key reach the store one at a time, in order of arrival. On a store with conditional writes, all but one
 * of the concurrent writes would conflict.
 */
export class Queue {
  /** The calls that wait for each busy key. */
  readonly #waiting = new Map<string, Set<() => void>>();

  /** Starts a call, now or when its turn comes. False if too many wait already. */
  enter(key: string, start: () => void): boolean {
    const waiting = this.#waiting.get(key);
    if (!waiting) {
      this.#waiting.set(key, new Set());
      start();
      return true;
    }
    if (waiting.size >= WAITING_MAX) return false;
    waiting.add(start);
    return true;
  }

  /** Removes a call, whether it was started or still waits, and starts the next one. */
  leave(key: string, start: () => void): void {
    const waiting = this.#waiting.get(key);
    if (!waiting || waiting.delete(start)) return;
    const [next] = waiting;
    if (next) {
      waiting.delete(next);
      next();
    } else {
      this.#waiting.delete(key);
    }
  }
}
