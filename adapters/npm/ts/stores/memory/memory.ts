import type { Core } from "../../core.js";
import type { MemoryEngine, MemoryLimit } from "../../glue.js";
import type { Question } from "../../question.js";
import { Immediate } from "./immediate.js";

/** Whether the counts have their random numbers: Workers have none before their first request. */
let isSeeded = false;

/** Asks the counts in the WebAssembly's memory, which answer at once. */
export class Memory extends Immediate {
  readonly #engine: MemoryEngine;
  readonly #core: Core<MemoryLimit>;

  constructor(engine: MemoryEngine, core: Core<MemoryLimit>) {
    super();
    this.#engine = engine;
    this.#core = core;
  }

  answer(question: Question): void {
    if (!isSeeded) this.#seed();
    const { kind, cost, now, extra } = question;
    this.#core.took(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra));
  }

  #seed(): void {
    const [a, b, c, d] = crypto.getRandomValues(new Uint32Array(4));
    this.#engine.seed(a!, b!, c!, d!);
    isSeeded = true;
  }
}
