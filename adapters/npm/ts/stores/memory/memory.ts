import type { Core } from "../../core.js";
import type { MemoryEngine, MemoryLimit } from "../../glue.js";
import type { Question } from "../../question.js";
import { Immediate } from "./immediate.js";

/** Whether the counts have their random numbers: Workers have none before their first request. */
let isSeeded = false;

/** The most keys that have numbers. */
const KNOWN_MAX = 4_096;

/** The longest of them. */
const KNOWN_LEN_MAX = 128;

/** After so many questions about other keys, those asked next get the numbers. */
const STRANGERS_MAX = 16 * KNOWN_MAX;

/** Asks the counts in the WebAssembly's memory, which answer at once. */
export class Memory extends Immediate {
  readonly #engine: MemoryEngine;
  readonly #core: Core<MemoryLimit>;
  /** The numbers of the keys that come often. The WebAssembly has read those keys, so their text need not be written again. */
  readonly #known = new Map<string, number>();
  #strangers = 0;

  constructor(engine: MemoryEngine, core: Core<MemoryLimit>) {
    super();
    this.#engine = engine;
    this.#core = core;
  }

  answer(question: Question): void {
    if (!isSeeded) this.#seed();
    const { kind, key, cost, now, extra } = question;
    const { limit } = this.#core;
    const isAlone = question.token === undefined && question.others.length === 0;
    const number = isAlone ? this.#known.get(key) : undefined;
    if (number !== undefined) {
      this.#core.took(limit.askKnown(kind, number, cost, now, extra));
      return;
    }
    const length = this.#core.pass(question);
    this.#core.took(limit.ask(kind, length, cost, now, extra));
    if (isAlone && length <= KNOWN_LEN_MAX) this.#know(key, length);
  }

  /** Gives a number to a key that is written. */
  #know(key: string, length: number): void {
    if (this.#known.size < KNOWN_MAX) {
      this.#core.limit.know(length);
      this.#known.set(key, this.#known.size);
    } else if (++this.#strangers === STRANGERS_MAX) {
      this.#strangers = 0;
      this.#core.limit.forget();
      this.#known.clear();
    }
  }

  #seed(): void {
    const [a, b, c, d] = crypto.getRandomValues(new Uint32Array(4));
    this.#engine.seed(a!, b!, c!, d!);
    isSeeded = true;
  }
}
