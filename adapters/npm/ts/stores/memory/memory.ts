import { Bytes } from "../../bytes.js";
import type { Caller, Gate, MemoryEngine } from "../../glue.js";
import { begin, type Question } from "../../question.js";
import { Immediate } from "./immediate.js";

/** Whether the counts have their random numbers: Workers have none before their first request. */
let isSeeded = false;

/** Asks the counts in the WebAssembly's memory, which answer at once. */
export class Memory extends Immediate {
  readonly #engine: MemoryEngine;
  readonly #gate: Gate;
  readonly #bytes: Bytes;
  #caller: Caller | undefined;

  constructor(engine: MemoryEngine, gate: Gate) {
    super();
    this.#engine = engine;
    this.#gate = gate;
    this.#bytes = new Bytes(engine);
  }

  answer(question: Question): void {
    if (!isSeeded) this.#seed();
    if (question.kind === "check" && question.token === undefined && question.others.length === 0) {
      const length = this.#bytes.write(question.key);
      if (length >= 0 && this.#gate.decide(length, question.cost, question.now)) return;
    }
    const caller = this.#caller ?? this.#gate.caller();
    this.#caller = undefined;
    begin(caller, question);
    this.#caller = caller;
  }

  #seed(): void {
    const [a, b, c, d] = crypto.getRandomValues(new Uint32Array(4));
    this.#engine.seed(a!, b!, c!, d!);
    isSeeded = true;
  }
}
