import type { Runner } from "./calls.js";
import { type Common, Core } from "./core.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import type { MakeRule } from "./core/policy.js";
import { invalid, isStoreFailure, TidegateError } from "./error.js";
import { text } from "./fields.js";
import { Health } from "./log.js";
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

/** A store, which answers or does not. */
export abstract class StoreLayer implements Layer {
  readonly health = new Health();
  abstract readonly capabilities: Capabilities;

  protected abstract decideNow(question: Question): Decision | undefined;
  protected abstract decide(question: Question): Promise<Decision>;

  known(question: Question): Decision | undefined {
    try {
      const decision = this.decideNow(question);
      return decision && this.health.heard(decision);
    } catch (thrown) {
      throw this.#failed(thrown);
    }
  }

  async ask(question: Question): Promise<Decision> {
    try {
      return this.health.heard(await this.decide(question));
    } catch (thrown) {
      throw this.#failed(thrown);
    }
  }

  #failed(thrown: unknown): TidegateError {
    const error = TidegateError.from(thrown);
    if (isStoreFailure(error)) this.health.failed(error);
    return error;
  }
}

/** What counts by one policy in a store. */
export class PolicyLayer extends StoreLayer {
  readonly core: Core;
  readonly #runner: Runner;
  readonly #broken: TidegateError | undefined;

  /** `broken` is why it cannot decide, for example because a variable is missing. */
  constructor(options: Common, capabilities: Capabilities, makeRule: MakeRule, makeRunner: (core: Core) => Runner, broken: TidegateError | undefined) {
    super();
    this.core = new Core(options, capabilities, makeRule);
    this.#runner = makeRunner(this.core);
    this.#broken = broken;
  }

  get capabilities(): Capabilities {
    return this.core.capabilities;
  }

  /** Whether it answers at once. */
  get isLocal(): boolean {
    return !this.#runner.run;
  }

  assertReady(): void {
    if (this.#broken) throw this.#broken;
  }

  protected decideNow(question: Question): Decision | undefined {
    this.#address(question);
    timed(question);
    return this.#runner.answer(question) ? this.core.decision : undefined;
  }

  protected decide(question: Question): Promise<Decision> {
    return new Promise((resolve, reject) => {
      const known = this.decideNow(question);
      if (known) resolve(known);
      else this.#runner.run!(question, () => resolve(this.core.decision), reject);
    });
  }

  /** Writes the key of each dimension of the policy into a question. */
  #address(question: Question): void {
    this.assertReady();
    const names = this.core.dimensions;
    const { keys } = question;
    if (typeof keys !== "object") {
      question.key = text("key", keys);
      if (names.length > 1) throw invalid("keys", `missing; write ${written(names)}`);
      return;
    }
    const others = names.map((name) => {
      const place = `keys.${name}`;
      if (!Object.hasOwn(keys, name)) throw invalid(place, `missing; write ${written(names)}`);
      return text(place, keys[name]);
    });
    question.key = others.pop()!;
    question.others = others;
  }
}

/** Keys of these dimensions, as a caller would write them. */
export function written(names: readonly string[]): string {
  return `keys: { ${names.map((name) => name || '""').join(", ")} }`;
}
