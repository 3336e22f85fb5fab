import type { Runner } from "../../calls.js";
import type { Caller, Gate, MemoryEngine } from "../../glue.js";
import { begin, type Question } from "../../question.js";

/** The longest key that is passed as bytes. */
const KEY_LEN_MAX = 256;

/** Whether the counts have their random numbers: Workers have none before their first request. */
let isSeeded = false;

/** Asks the counts in the WebAssembly's memory, which answer at once. */
export class Memory implements Runner {
  readonly #engine: MemoryEngine;
  readonly #gate: Gate;
  #caller: Caller | undefined;
  #bytes = new Uint8Array(0);

  constructor(engine: MemoryEngine, gate: Gate) {
    this.#engine = engine;
    this.#gate = gate;
  }

  run(question: Question, done: () => void, failed: (thrown: unknown) => void): void {
    try {
      this.answer(question);
    } catch (thrown) {
      return failed(thrown);
    }
    done();
  }

  answer(question: Question): void {
    if (!isSeeded) this.#seed();
    if (question.kind === "check" && question.token === undefined && question.others.length === 0) {
      const length = this.#write(question.key);
      if (length > 0 && this.#gate.decide(length, question.cost, question.now)) return;
    }
    const caller = this.#caller ?? this.#gate.caller();
    this.#caller = undefined;
    begin(caller, question);
    this.#caller = caller;
  }

  /** Writes a key of ASCII characters. Returns its length, or 0 if it is another key. */
  #write(key: string): number {
    const { length } = key;
    if (length > KEY_LEN_MAX) return 0;
    // The memory moves when it grows. Then a view of it has no length.
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(this.#engine.memory().buffer, this.#engine.keyAt(), KEY_LEN_MAX);
    const bytes = this.#bytes;
    for (let at = 0; at < length; at++) {
      const code = key.charCodeAt(at);
      if (code > 0x7f) return 0;
      bytes[at] = code;
    }
    return length;
  }

  #seed(): void {
    const [a, b, c, d] = crypto.getRandomValues(new Uint32Array(4));
    this.#engine.seed(a!, b!, c!, d!);
    isSeeded = true;
  }
}
