import type { Runner } from "../../calls.js";
import type { Question } from "../../question.js";

/** Asks a store that answers at once. */
export abstract class Immediate implements Runner {
  abstract answer(question: Question): void;

  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    try {
      this.answer(question);
    } catch (thrown) {
      return failed(thrown);
    }
    done();
  }
}
