import type { Question } from "./question.js";

/** The most calls that wait for one key. */
const WAITING_MAX = 1_024;

/** The calls for a busy key. */
interface Line {
  /** How many have been started and have not left. */
  running: number;
  /** Those that wait, in order. */
  readonly waiting: Map<() => void, Question>;
}

/**
 * Lets the calls for a key reach the store one at a time, in order of arrival, or several together. On a store with conditional writes, all
 * but one of the concurrent writes would conflict.
 */
export class Queue {
  readonly #lines = new Map<string, Line>();

  /** Starts a call, now or when its turn comes. False if too many wait already. */
  enter(question: Question, start: () => void): boolean {
    const line = this.#lines.get(question.key);
    if (!line) {
      this.#lines.set(question.key, { running: 1, waiting: new Map() });
      start();
      return true;
    }
    if (line.waiting.size >= WAITING_MAX) return false;
    line.waiting.set(start, question);
    return true;
  }

  /** Whether calls wait for a key. */
  waits(key: string): boolean {
    return (this.#lines.get(key)?.waiting.size ?? 0) > 0;
  }

  /** Starts those that wait for a key, in order, until one does not fit. */
  startAll(key: string, fits: (question: Question) => boolean): void {
    const line = this.#lines.get(key);
    if (!line) return;
    for (const [start, question] of line.waiting) {
      if (!fits(question)) break;
      this.#start(line, start);
    }
  }

  /** Removes a call, whether it was started or still waits. The last one of those that were started makes room for the next one. */
  leave(key: string, start: () => void): void {
    const line = this.#lines.get(key);
    if (!line || line.waiting.delete(start)) return;
    line.running -= 1;
    if (line.running > 0) return;
    const [next] = line.waiting.keys();
    if (next) this.#start(line, next);
    else this.#lines.delete(key);
  }

  #start(line: Line, start: () => void): void {
    line.waiting.delete(start);
    line.running += 1;
    start();
  }
}
