import type { Runner } from "./calls.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import { current, type Dimension } from "./core/policy.js";
import { invalid, type TidegateError } from "./error.js";
import { text } from "./fields.js";
import type { ExactCore } from "./limiter_core.js";
import { type Question, timed } from "./question.js";

/** What limiters and gates ask for decisions: a store, or what is around it. It throws and rejects with a `TidegateError`. */
export interface Layer {
  readonly capabilities: Capabilities;
  /** Decides if that needs no call, because of a loan or a denial, or because the store is in memory. Otherwise nothing has happened. */
  known?(question: Question): Decision | undefined;
  ask(question: Question): Promise<Decision>;
}

/** The name of a limiter's layer, for gates: the application may have loaded this module twice. */
export const LAYER = Symbol.for("@tidegate/edge/layer");

/** What counts by one policy: in memory, or in a store that it calls. It throws errors as they are thrown there. */
export class PolicyLayer implements Layer {
  readonly #core: ExactCore;
  readonly #runner: Runner;
  readonly #broken: TidegateError | undefined;

  /** `broken` is why it cannot decide, for example because a variable is missing. */
  constructor(core: ExactCore, runner: Runner, broken?: TidegateError) {
    this.#core = core;
    this.#runner = runner;
    this.#broken = broken;
  }

  get capabilities(): Capabilities {
    return this.#core.capabilities;
  }

  known(question: Question): Decision | undefined {
    this.#address(question);
    timed(question);
    // A reset has no time.
    question.policy = current(question.policy, question.now || Date.now());
    return this.#runner.answer(question) ? this.#core.decision : undefined;
  }

  ask(question: Question): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const known = this.known(question);
      if (known) resolve(known);
      else this.#runner.run!(question, () => resolve(this.#core.decision), reject);
    });
  }

  /** Writes the key of each dimension of the policy into a question. */
  #address(question: Question): void {
    if (this.#broken) throw this.#broken;
    const { keys, policy } = question;
    const { dimensions } = policy;
    // The number of a limit may differ. What is counted may not.
    if (policy.id !== this.#core.policy.id) throw ["corrupt", `it counts by "${this.#core.policy.id}", and is asked by "${policy.id}"`];
    if (typeof keys !== "object") {
      question.key = text("key", keys);
      if (dimensions.length > 1) throw invalid("keys", `missing; write ${written(dimensions)}`);
      return;
    }
    const others = dimensions.map(({ name }) => {
      const place = `keys.${name}`;
      if (!Object.hasOwn(keys, name)) throw invalid(place, `missing; write ${written(dimensions)}`);
      return text(place, keys[name]);
    });
    question.key = others.pop()!;
    question.others = others;
  }
}

/** Keys of these dimensions, as a caller would write them. */
export function written(dimensions: readonly Dimension[]): string {
  return `keys: { ${dimensions.map(({ name }) => name || '""').join(", ")} }`;
}
