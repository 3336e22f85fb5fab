import { tooLate } from "../../late_call.js";
import type { Runner } from "../../calls.js";
import { withoutCounts } from "../../core/decide.js";
import { ALLOWED, DENIED, FROM_STORE, UNKNOWN } from "../../decision_numbers.js";
import type { ExactCore } from "../../limiter_core.js";
import type { Question } from "../../question.js";
import { said } from "../../store.js";

/** A binding of Cloudflare's Rate Limiting API. */
export interface Binding {
  limit(options: { key: string }): Promise<{ success: boolean }>;
}

/** What errors call it. */
const NAME = "Rate Limiting binding";

/**
 * Asks the binding. Its calls share nothing, because the platform keeps requests apart: no connection, no timer and no turn. So none waits for
 * another, and none counts them: the platform drops a call without a word when its request is cancelled. Those of other stores are run by
 * `Calls`, whose errors these have, too.
 */
export class BindingCalls implements Runner {
  readonly #core: ExactCore;
  readonly #binding: Binding;
  readonly #deadlineMs: number;
  readonly #nameOf: (question: Question) => string | Promise<string>;
  /** The number of answers so far. */
  #answers = 0;

  /** `nameOf` is what a question is counted by. It throws why the binding cannot answer it. */
  constructor(core: ExactCore, binding: Binding, deadlineMs: number, nameOf: (question: Question) => string | Promise<string>) {
    this.#core = core;
    this.#binding = binding;
    this.#deadlineMs = deadlineMs;
    this.#nameOf = nameOf;
  }

  answer(): boolean {
    return false;
  }

  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    const before = this.#answers;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const end = (last: () => void) => {
      if (timer === undefined) return;
      clearTimeout(timer);
      timer = undefined;
      last();
    };
    const late = () => failed(tooLate(this.#answers > before, NAME, this.#deadlineMs, true));
    try {
      const sent = this.#count(this.#nameOf(question));
      // After one more turn, so that a busy process reads the answers that have arrived before it declares a call late.
      timer = setTimeout(() => (timer = setTimeout(() => end(late))), this.#deadlineMs);
      sent.then(
        (isAdmitted) => {
          this.#answers += 1;
          end(() => {
            this.#core.decision = withoutCounts(question.policy, isAdmitted ? ALLOWED : DENIED, 0, UNKNOWN, question.now, FROM_STORE);
            done();
          });
        },
        (thrown) => end(() => failed(errorOf(thrown))),
      );
    } catch (thrown) {
      failed(thrown);
    }
  }

  async #count(name: string | Promise<string>): Promise<boolean> {
    return (await this.#binding.limit({ key: await name })).success;
  }
}

/** The error of a call that has thrown. */
function errorOf(thrown: unknown): [kind: string, message: string] {
  const why = said(thrown);
  // A client can cause the first two, with enough requests or an odd key.
  const kind = /429|too many/i.test(why) ? "contended" : /invalid|bad rate limit|must be|TypeError|RangeError/i.test(why) ? "refused" : "unavailable";
  return [kind, `${NAME}: call failed: ${why}; the request may have been counted`];
}
