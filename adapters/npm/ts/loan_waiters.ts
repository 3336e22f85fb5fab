/** Requests that wait for the answer to another one's question, by its number. */
export class Waiters {
  readonly #questions = new Map<number, Waiting>();

  /** Waits until a question has ended, if what its answer probably grants is enough for all that wait. */
  join(nth: number, cost: number, expects: number): Promise<void> | undefined {
    const waiting = this.#questions.get(nth) ?? new Waiting();
    if (waiting.costs + cost > expects) return undefined;
    waiting.costs += cost;
    this.#questions.set(nth, waiting);
    return waiting.ended;
  }

  /** A question has ended. */
  end(nth: number): void {
    this.#questions.get(nth)?.end();
    this.#questions.delete(nth);
  }
}

class Waiting {
  /** What all that wait cost. */
  costs = 0;
  end!: () => void;
  readonly ended = new Promise<void>((resolve) => (this.end = resolve));
}
