import type { ErrorKind } from "../../error.js";
import type { Engine } from "../../glue.js";
import type { Question } from "../../question.js";
import type { Memory } from "../memory/memory.js";
import { Immediate } from "../memory/immediate.js";

/** What a test has staged. */
export interface Staging {
  now: number;
  /** Tells the counts of this limiter from those of all others, and from those before it was restarted. */
  run: number;
  /** Until when each key is denied. The empty one stands for all. */
  denied: Map<string, number>;
  failure: ErrorKind | undefined;
}

/** The places of a decision's status and wait among its numbers. */
const [STATUS, WAIT] = [0, 2];
const DENIED = 1;

let runs = 0;

/** Asks the memory, as a test has staged it. */
export class Staged extends Immediate {
  readonly #engine: Engine;
  readonly #memory: Memory;
  readonly #staging: Staging;

  constructor(engine: Engine, memory: Memory, staging: Staging) {
    super();
    this.#engine = engine;
    this.#memory = memory;
    this.#staging = staging;
  }

  static next(): number {
    return (runs += 1);
  }

  answer(question: Question): void {
    const { failure, now, run, denied } = this.#staging;
    if (failure) throw [failure, `testing: ${failure}, as the test has it`];
    const isCheck = question.kind === "check" || question.kind === "peek";
    const ends = ["", question.key, ...question.others].map((key) => denied.get(key) ?? 0);
    const wait = isCheck ? Math.max(...ends) - now : 0;
    const own = (key: string) => `${run}|${key}`;
    this.#memory.answer({ ...question, kind: wait > 0 ? "peek" : question.kind, key: own(question.key), others: question.others.map(own), now });
    if (wait <= 0) return;
    const numbers = new Float64Array(this.#engine.memory().buffer, this.#engine.numbersAt(), WAIT + 1);
    numbers[STATUS] = DENIED;
    numbers[WAIT] = wait;
  }
}
