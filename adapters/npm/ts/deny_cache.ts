import type { Core } from "./core.js";
import { type Bounds, Denials } from "./denials.js";
import { CHECK, type Question, SETTLE } from "./question.js";
import type { Store } from "./store.js";

/**
 * Denies a key that was denied before without asking the store, until its wait is over. It does what core's `DenyCache` does, to which
 * `test/deny-cache.test.mjs` holds it.
 */
export class DenyCache implements Store {
  readonly name: string;
  readonly #store: Store;
  readonly #core: Core;
  readonly #denials: Denials;

  constructor(store: Store, core: Core, bounds: Bounds) {
    this.name = store.name;
    this.#store = store;
    this.#core = core;
    this.#denials = new Denials(bounds);
  }

  answer(question: Question): boolean {
    return (question.kind === CHECK && this.#recall(question)) || (this.#store.answer?.(question) ?? false);
  }

  send(question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> | undefined {
    if (question.kind === CHECK && this.#recall(question)) return undefined;
    question.forgotten = this.#denials.forgotten;
    return this.#after(question, () => this.#store.send(question, signal, inFlight));
  }

  answered(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#after(question, () => this.#store.answered(question, answer, signal));
  }

  threw(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#after(question, () => this.#store.threw(question, thrown, signal));
  }

  late(question: Question): boolean {
    if (question.kind >= SETTLE) this.#forget(question);
    return this.#store.late?.(question) ?? false;
  }

  /** Remembers a denial, and forgets those that may not hold any more: also if the call has failed, as it may have been applied. */
  #after(question: Question, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    let sent: Promise<unknown> | undefined;
    let isOver = true;
    try {
      sent = step();
      isOver = sent === undefined;
    } finally {
      if (isOver && question.kind >= SETTLE) this.#forget(question);
    }
    if (isOver && question.kind === CHECK) this.#remember(question);
    return sent;
  }

  #recall(question: Question): boolean {
    const { token, cost, now } = question;
    const recalled = this.#denials.recall(nameOf(question), cost, now);
    if (!recalled || token !== undefined) return false;
    this.#core.decision = recalled;
    return true;
  }

  #remember(question: Question): void {
    const { token, cost, now, forgotten } = question;
    if (token === undefined) this.#denials.remember(nameOf(question), cost, now, this.#core.decision, forgotten);
  }

  #forget(keys: Question): void {
    // Others may share one of several keys, and be denied by it.
    this.#denials.forget(keys.others.length > 0 ? undefined : nameOf(keys));
  }
}

function nameOf({ key, others }: Question): string {
  return others.length > 0 ? JSON.stringify([...others, key]) : key;
}
