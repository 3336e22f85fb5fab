import type { Runner } from "../../calls.js";
import { current } from "../../core/policy.js";
import { DENIED, STATUS, WAIT } from "../../decision_numbers.js";
import type { ErrorKind } from "../../error.js";
import type { ExactCore } from "../../limiter_core.js";
import { CHECK, PEEK, type Question } from "../../question.js";
import type { Memory } from "../memory/memory.js";

/** What a test has staged. */
export interface Staging {
  now: number;
  /** Tells the counts of this limiter from those of all others, and from those before it was restarted. */
  run: number;
  /** Until when each key is denied. The empty one stands for all. */
  denied: Map<string, number>;
  failure: ErrorKind | undefined;
}

let runs = 0;

/** Asks the memory, as a test has staged it. */
export class Staged implements Runner {
  readonly #core: ExactCore;
  readonly #memory: Memory;
  readonly #staging: Staging;

  constructor(core: ExactCore, memory: Memory, staging: Staging) {
    this.#core = core;
    this.#memory = memory;
    this.#staging = staging;
  }

  static next(): number {
    return (runs += 1);
  }

  answer(question: Question): true {
    const { failure, now, run, denied } = this.#staging;
    if (failure) throw [failure, `testing: ${failure}, as the test has it`];
    const isCheck = question.kind === CHECK || question.kind === PEEK;
    const ends = ["", question.key, ...question.others].map((key) => denied.get(key) ?? 0);
    const wait = isCheck ? Math.max(...ends) - now : 0;
    const own = (key: string) => `${run}|${key}`;
    const policy = current(question.policy, now);
    this.#memory.answer({ ...question, policy, kind: wait > 0 ? PEEK : question.kind, key: own(question.key), others: question.others.map(own), now });
    if (wait > 0) {
      const { decision } = this.#core;
      [decision[STATUS], decision[WAIT]] = [DENIED, wait];
    }
    return true;
  }
}
