import { Words } from "./command_cache.js";
import type { LoanAnswer, LoanQuestion } from "./core/lending/lender.js";
import type { StoreCore } from "./limiter_core.js";
import { type Question, timed } from "./question.js";
import { type Call, type Store, WAITED } from "./store.js";

/** What a store is asked: its words, and a borrower's question among them, with its number. */
export interface Asked<T> {
  readonly what: T;
  readonly loan: NumberedQuestion | undefined;
}

/** A question of the borrower of a key. */
export interface NumberedQuestion {
  readonly nth: number;
  readonly question: LoanQuestion;
}

/** What decides from loans of a store: see `lending_store.ts`, which only who borrows loads. */
export interface Borrowing {
  /** See `Store`. */
  answer(question: Question): boolean;
  send(call: Call): Promise<unknown> | undefined;
  late(call: Call): void;
  /** Decides after the wait for another one's answer, or for the first connection. */
  goOn(call: Call): Promise<unknown> | undefined;
  /** A step of a call, which ends it if it throws. */
  guarded(call: Call, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined;
  /** Takes the answer to a borrower's question. */
  lent(question: Question, asked: NumberedQuestion, answer: LoanAnswer): void;
}

/** How a store is asked. */
export interface AskingOptions {
  /** Whether the store's clock decides. */
  isTimeless: boolean;
  /** Makes what borrows of the store, if something does. */
  borrowing?: ((store: Asking<unknown>) => Borrowing) | undefined;
}

/** A store that is asked in words, and may lend. `T` is what it is asked. */
export abstract class Asking<T> implements Store {
  abstract readonly name: string;
  readonly core: StoreCore;
  readonly #words: Words<Asked<T>>;
  readonly #borrowing: Borrowing | undefined;

  constructor(core: StoreCore, { isTimeless, borrowing }: AskingOptions) {
    this.core = core;
    // What a borrower asks is something else each time.
    this.#words = new Words(isTimeless && !borrowing);
    this.#borrowing = borrowing?.(this as Asking<unknown>);
  }

  /** What to ask of a question, along with a borrower's. `isLent` tells that its state has loans. */
  abstract words(question: Question, loan: LoanQuestion | undefined, isLent: boolean): T;
  /** Sends it. */
  abstract begin(call: Call, asked: Asked<T>): Promise<unknown> | undefined;
  /** Has begun all that is told together. */
  told?(): void;
  /** What to wait for before anything is sent: the first connection. */
  opening?(): Promise<void> | undefined;
  /** Reads an answer: see `Store`. */
  abstract read(call: Call, answer: unknown): Promise<unknown> | undefined;
  /** Reads what was thrown: see `Store`. */
  abstract failed(call: Call, thrown: unknown): Promise<unknown> | undefined;

  /** Whether states probably have loans. */
  protected get borrows(): boolean {
    return this.#borrowing !== undefined;
  }

  answer(question: Question): boolean {
    return this.#borrowing?.answer(question) ?? false;
  }

  send(call: Call): Promise<unknown> | undefined {
    const opening = this.opening?.();
    if (opening) return waits(call, opening, false);
    const known = this.#words.get(call.question);
    if (known) return this.begin(call, known);
    return this.#borrowing ? this.#borrowing.send(call) : this.#ask(call);
  }

  answered(call: Call, answer: unknown): Promise<unknown> | undefined {
    if (answer !== WAITED) return this.#guarded(call, () => this.read(call, answer));
    if (this.#borrowing) return this.#borrowing.goOn(call);
    timed(call.question);
    return this.#ask(call);
  }

  threw(call: Call, thrown: unknown): Promise<unknown> | undefined {
    return this.#guarded(call, () => this.failed(call, thrown));
  }

  late(call: Call): boolean {
    this.#borrowing?.late(call);
    return false;
  }

  /** What a question asks without a loan. Throws if the store cannot answer it. */
  plain(question: Question): Asked<T> {
    this.core.verify(question);
    const asked = { what: this.words(question, undefined, false), loan: undefined };
    this.#words.set(question, asked);
    return asked;
  }

  /** Takes the answer to a borrower's question, and leaves its decision. */
  protected lent(question: Question, asked: NumberedQuestion, answer: LoanAnswer): void {
    this.#borrowing?.lent(question, asked, answer);
    this.core.decision = answer.decision;
  }

  #ask(call: Call): Promise<unknown> | undefined {
    return this.begin(call, this.plain(call.question));
  }

  #guarded(call: Call, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    return this.#borrowing ? this.#borrowing.guarded(call, step) : step();
  }
}

/** Has a call wait, for an answer to another one or not. */
export function waits(call: Call, until: Promise<unknown>, isDecided: boolean): Promise<unknown> {
  [call.note, call.noted, call.waits] = [performance.now(), isDecided, true];
  return until;
}
