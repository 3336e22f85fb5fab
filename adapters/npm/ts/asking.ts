import type { Store } from "./calls.js";
import type { Core } from "./core.js";
import type { AskingLimit } from "./glue.js";
import type { Lending } from "./leases.js";
import { ask, CHECK, type Question, SETTLE } from "./question.js";
import { Words } from "./words.js";

/** What a store is asked, and the number of that call in the WebAssembly. */
export interface Asked<T> {
  readonly what: T;
  readonly call: number;
}

/** A store that is asked in the words of the WebAssembly, and may lend. `T` is what it is asked. */
export abstract class Asking<T, L extends AskingLimit> implements Store {
  abstract readonly name: string;
  protected readonly core: Core<L>;
  readonly #words: Words<Asked<T>>;
  readonly #borrows: boolean;
  readonly #keepAlive: Lending["keepAlive"];
  readonly #deadlineMs: number;

  constructor(core: Core<L>, { isTimeless, slice, keepAlive, deadlineMs }: Lending & { isTimeless: boolean }) {
    this.core = core;
    this.#borrows = slice > 0;
    // What a borrower asks is something else each time.
    this.#words = new Words(isTimeless && !this.#borrows);
    this.#keepAlive = keepAlive;
    this.#deadlineMs = deadlineMs;
  }

  /** What a question asks, by the text and the number that the WebAssembly has left. */
  protected abstract asked(kind: Question["kind"], text: string, call: number): T;
  /** Sends it. */
  protected abstract call(question: Question, asked: Asked<T>, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> | undefined;
  /** Reads an answer: see `Store`. */
  protected abstract read(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;
  /** Reads what was thrown: see `Store`. */
  protected abstract failed(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined;

  send(question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> | undefined {
    const known = this.#words.get(question);
    if (known) return this.call(question, known, signal, inFlight);
    const asked = this.ask(question, false);
    if (this.#borrows) this.#returnIdle(question.now);
    return asked && this.#guarded(question, () => this.call(question, asked, signal, inFlight));
  }

  answered(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#guarded(question, () => this.read(question, answer, signal));
  }

  threw(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#guarded(question, () => this.failed(question, thrown, signal));
  }

  late(question: Question): boolean {
    if (this.#borrows) this.#end(question);
    return false;
  }

  /** What a question asks. Undefined if it is decided. `isLent` tells that its state has loans. */
  protected ask(question: Question, isLent: boolean): Asked<T> | undefined {
    const { kind, cost, now, extra } = question;
    const { core } = this;
    const length = core.took(core.limit.ask(kind, core.pass(question), cost, now, extra, isLent));
    if (length === 0) return undefined;
    const call = Math.abs(core.extra);
    const isDecided = core.extra < 0;
    const asked = { what: this.asked(kind, core.text(length), call), call };
    if (isDecided) {
      this.#inBackground({ ...question, cost: 0 }, asked);
      return undefined;
    }
    if (!isLent) this.#words.set(question, asked);
    return asked;
  }

  /** Passes the keys that an answer is about. */
  protected about(question: Question): void {
    if (this.#borrows || question.token !== undefined) this.core.pushAll(question);
  }

  /** A step of a call, which ends it if it throws. A settlement, a block or a reset is noted, too. */
  #guarded(question: Question, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    if (!this.#borrows) return step();
    let isOver = true;
    try {
      const sent = step();
      isOver = sent === undefined && question.kind >= SETTLE;
      return sent;
    } finally {
      if (isOver) this.#end(question);
    }
  }

  #end({ kind, key, note }: Question): void {
    this.core.push(key);
    this.core.limit.ended(kind, note);
  }

  /** Has idle keys return what they hold. */
  #returnIdle(now: number): void {
    const { core } = this;
    for (let length = core.took(core.limit.due(now)); length > 0; length = core.took(core.limit.due(now))) {
      const [call, text] = [core.extra, core.text(length)];
      const end = text.indexOf("\n");
      const question = { ...ask(CHECK, now), cost: 0, key: text.slice(0, end) };
      this.#inBackground(question, { what: this.asked(CHECK, text.slice(end + 1), call), call });
    }
  }

  #inBackground(question: Question, asked: Asked<T>): void {
    this.#keepAlive(this.#finish(question, asked));
  }

  /** Asks what nobody waits for. If it fails, what is lent stays lent until its end. */
  async #finish(question: Question, asked: Asked<T>): Promise<void> {
    const signal = AbortSignal.timeout(this.#deadlineMs);
    try {
      for (let sent = this.call(question, asked, signal, 1); sent; ) {
        const [answer, thrown] = await sent.then(
          (answer) => [answer, undefined] as const,
          (thrown: unknown) => [undefined, { thrown }] as const,
        );
        sent = thrown ? this.failed(question, thrown.thrown, signal) : this.read(question, answer, signal);
      }
    } catch {
      // Nobody waits for it.
    }
    this.#end(question);
  }
}

