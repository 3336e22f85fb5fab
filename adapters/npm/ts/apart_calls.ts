import { type Runner, tooLate } from "./calls.js";
import type { Question } from "./question.js";
import { called, type Store } from "./store.js";

/**
 * Runs calls that share nothing, where a platform keeps requests apart: no connection, no timer and no turn. So none waits for another, and
 * none counts them: a platform drops a call without a word when its request is cancelled. Those of other stores are run by `Calls`, whose
 * errors these have, too.
 */
export class ApartCalls implements Runner {
  readonly #store: Store;
  readonly #deadlineMs: number;
  /** The number of answers from the store so far. */
  #answers = 0;

  constructor(store: Store, deadlineMs: number) {
    this.#store = store;
    this.#deadlineMs = deadlineMs;
  }

  answer(): boolean {
    return false;
  }

  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    const [call, before] = [called(question), this.#answers];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = (isAnswer: boolean, last: () => unknown) => {
      if (isAnswer) this.#answers += 1;
      if (timer === undefined) return;
      clearTimeout(timer);
      timer = undefined;
      try {
        last();
      } catch (thrown) {
        return failed(thrown);
      }
      done();
    };
    const late = () => {
      throw tooLate(this.#answers > before, this.#store.name, this.#deadlineMs, true);
    };
    try {
      const sent = this.#store.send(call)!;
      // After one more turn, so that a busy process reads the answers that have arrived before it declares a call late.
      timer = setTimeout(() => (timer = setTimeout(() => end(false, late))), this.#deadlineMs);
      sent.then(
        (answer) => end(true, () => this.#store.answered(call, answer)),
        (thrown) => end(false, () => this.#store.threw(call, thrown)),
      );
    } catch (thrown) {
      failed(thrown);
    }
  }
}
