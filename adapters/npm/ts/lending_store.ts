import { handle } from "./calls.js";
import type { StoreCore } from "./limiter_core.js";
import { withoutCounts } from "./core/decide.js";
import { type Answer, canBorrow } from "./core/lending/borrower.js";
import { Borrowers } from "./core/lending/borrowers.js";
import { canLend, type LoanAnswer, type LoanQuestion, tooMuchGrace } from "./core/lending/lender.js";
import { current } from "./core/policy.js";
import type { Lending } from "./leases.js";
import { invalid } from "./error.js";
import { ALLOWED, DENIED, FROM_DENY_CACHE, FROM_LEASE, UNKNOWN } from "./decision_numbers.js";
import { ask, CHECK, clamped, type Question, SETTLE, timed } from "./question.js";
import { type Call, called, type Store, WAITED } from "./store.js";
import { Waiters } from "./loan_waiters.js";
import { KEY_LEN_MAX, Words } from "./command_cache.js";

/** What a store is asked: its words, and a borrower's question among them, with its number. */
export interface Asked<T> {
  readonly what: T;
  readonly loan: NumberedQuestion | undefined;
}

/** A question of the borrower of a key. */
interface NumberedQuestion {
  readonly nth: number;
  readonly question: LoanQuestion;
}

/** How long what can be told together waits, in milliseconds. */
const PAUSE = 100;

/** The most that is told at once. */
const TOLD_AT_ONCE_MAX = 256;

/** A store that is asked in words, and may lend. `T` is what it is asked. */
export abstract class Asking<T> implements Store {
  abstract readonly name: string;
  protected readonly core: StoreCore;
  readonly #words: Words<Asked<T>>;
  /** What this isolate or process has borrowed, with a question about each key. */
  readonly #borrowers: Borrowers<Question> | undefined;
  readonly #waiters = new Waiters();
  readonly #keepAlive: Lending["keepAlive"];
  readonly #deadlineMs: number;
  readonly #mayWait: boolean;
  /** Until when another request waits for what can be told together. A platform may drop it, if it was cancelled. */
  #pausesUntil = 0;

  constructor(core: StoreCore, { isTimeless, slice, lifetimeMs, grace, keepAlive, deadlineMs, mayWait }: Lending & { isTimeless: boolean }) {
    this.core = core;
    const wrong = canLend(core.policy) && tooMuchGrace(grace, [core.policy]);
    if (wrong) throw invalid("leases.grace", wrong);
    if (slice > 0) this.#borrowers = new Borrowers({ slice, lifetime: lifetimeMs, deadline: deadlineMs, grace });
    // What a borrower asks is something else each time.
    this.#words = new Words(isTimeless && slice === 0);
    this.#keepAlive = keepAlive;
    this.#deadlineMs = deadlineMs;
    this.#mayWait = mayWait;
  }

  /** What to ask of a question, along with a borrower's. `isLent` tells that its state has loans. */
  protected abstract words(question: Question, loan: LoanQuestion | undefined, isLent: boolean): T;
  /** Sends it. */
  protected abstract begin(call: Call, asked: Asked<T>): Promise<unknown> | undefined;
  /** Has begun all that is told together. */
  protected told?(): void;
  /** What to wait for before anything is sent: the first connection. */
  protected opening?(): Promise<void> | undefined;
  /** Reads an answer: see `Store`. */
  protected abstract read(call: Call, answer: unknown): Promise<unknown> | undefined;
  /** Reads what was thrown: see `Store`. */
  protected abstract failed(call: Call, thrown: unknown): Promise<unknown> | undefined;

  /** Whether states probably have loans. */
  protected get borrows(): boolean {
    return this.#borrowers !== undefined;
  }

  answer(question: Question): boolean {
    const borrowers = this.#borrowers;
    if (!borrowers || !this.#mayBorrow(question)) return false;
    const { now, cost } = question;
    const answer = borrowers.answer(this.#nameOf(question), question.policy, cost, now);
    if (answer) this.#decided(question, answer);
    this.#tellSoon(borrowers, question);
    return answer !== undefined;
  }

  send(call: Call): Promise<unknown> | undefined {
    const { question } = call;
    const opening = this.opening?.();
    if (opening) return this.#waits(call, opening, false);
    const known = this.#words.get(question);
    if (known) return this.begin(call, known);
    const asked = this.#ask(question, this.#mayWait);
    if (this.#borrowers) this.#tellSoon(this.#borrowers, question);
    if (asked instanceof Promise) return this.#waits(call, asked, true);
    if (!asked) return undefined;
    return this.#guarded(call, () => this.#kept(asked, this.begin(call, asked)));
  }

  /** Keeps a borrower's question alive, even if its request is aborted: the loan would be lost with the answer. */
  #kept(asked: Asked<T>, sent: Promise<unknown> | undefined): Promise<unknown> | undefined {
    if (asked.loan && sent) this.#keepAlive(sent.catch(() => undefined));
    return sent;
  }

  /** Has a call wait, for an answer to another one or not. */
  #waits(call: Call, until: Promise<unknown>, isDecided: boolean): Promise<unknown> {
    [call.note, call.noted, call.waits] = [performance.now(), isDecided, true];
    return until;
  }

  answered(call: Call, answer: unknown): Promise<unknown> | undefined {
    if (answer === WAITED) return this.#goOn(call);
    return this.#guarded(call, () => this.read(call, answer));
  }

  threw(call: Call, thrown: unknown): Promise<unknown> | undefined {
    return this.#guarded(call, () => this.failed(call, thrown));
  }

  late(call: Call): boolean {
    this.#end(call);
    return false;
  }

  /** Takes the answer to a borrower's question, and leaves its decision. */
  protected lent(question: Question, { nth }: NumberedQuestion, answer: LoanAnswer): void {
    this.#borrowers?.answered(this.#nameOf(question), nth, answer);
    this.#waiters.end(nth);
    this.core.decision = answer.decision;
  }

  /** What a question asks. Undefined if it is decided, and a promise if it waits for another one's answer. */
  #ask(question: Question, mayWait: boolean, waited?: number): Asked<T> | Promise<unknown> | undefined {
    this.core.verify(question);
    const borrowers = this.#borrowers;
    if (borrowers && this.#mayBorrow(question)) return this.#borrow(borrowers, question, mayWait, waited);
    const asked = { what: this.words(question, undefined, false), loan: undefined };
    this.#words.set(question, asked);
    return asked;
  }

  #mayBorrow({ kind, policy, cost, key, token }: Question): boolean {
    return kind === CHECK && key.length <= KEY_LEN_MAX && canBorrow(policy, cost, token);
  }

  #borrow(borrowers: Borrowers<Question>, question: Question, mayWait: boolean, waited: number | undefined): Asked<T> | Promise<unknown> | undefined {
    const { policy, now, cost } = question;
    const verdict = borrowers.decide(this.#nameOf(question), policy, cost, now, question, waited);
    if (verdict.kind === "admit" || verdict.kind === "deny") {
      this.#decided(question, verdict);
      return undefined;
    }
    if (verdict.kind === "plain" && mayWait) {
      const ended = this.#waiters.join(verdict.nth, cost, verdict.expects);
      if (ended) return ended;
    }
    const loan = verdict.kind === "ask" ? verdict.asked : undefined;
    return { what: this.words(question, loan?.question, false), loan };
  }

  /** Decides after the wait. What was granted may not be enough for all that have waited for it, and none waits twice. */
  #goOn(call: Call): Promise<unknown> | undefined {
    const waited = call.noted === true ? Math.ceil(performance.now() - call.note) : undefined;
    if (waited === undefined) timed(call.question);
    const asked = this.#ask(call.question, false, waited) as Asked<T> | undefined;
    if (this.#borrowers) this.#tellSoon(this.#borrowers, call.question);
    return asked && this.#guarded(call, () => this.begin(call, asked));
  }

  /** Leaves the decision of a borrower. */
  #decided(question: Question, answer: Answer): void {
    const [{ core }, { policy }] = [this, question];
    if (answer.kind === "deny") {
      core.decision = withoutCounts(policy, DENIED, answer.binding, answer.retryAfter, question.now, FROM_DENY_CACHE);
      return;
    }
    core.decision = withoutCounts(policy, ALLOWED, 0, UNKNOWN, question.now, FROM_LEASE);
    if (answer.then) this.#inBackground({ ...question, cost: 0 }, answer.then);
  }

  /** The name of a key in the borrowers of this policy. */
  #nameOf({ key }: Question): string {
    return this.core.keyOf(key);
  }

  /** A step of a call, which ends it if it throws. A settlement, a block or a reset is noted, too. */
  #guarded(call: Call, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    if (!this.#borrowers) return step();
    let isOver = true;
    try {
      const sent = step();
      isOver = sent === undefined && call.question.kind >= SETTLE;
      return sent;
    } finally {
      if (isOver) this.#end(call);
    }
  }

  /** Notes that a call has ended: without an answer, or it has been read. */
  #end({ question, noted }: Call): void {
    if (!this.#borrowers) return;
    const name = this.#nameOf(question);
    const { loan } = (noted ?? {}) as Partial<Asked<T>>;
    if (loan) {
      this.#borrowers.answered(name, loan.nth, undefined);
      this.#waiters.end(loan.nth);
    }
    // It gives back what may have denied a check.
    if (question.kind >= SETTLE) this.#borrowers.forgetDenial(name);
  }

  /** Has what can be told together wait for a pause, unless another request waits for it. */
  #tellSoon(borrowers: Borrowers<Question>, { now, isTimed }: Question): void {
    if (!borrowers.mayBeDue(now)) return;
    const began = performance.now();
    if (began < this.#pausesUntil) return;
    this.#pausesUntil = began + 2 * PAUSE;
    const tell = async () => {
      // It keeps no process alive by itself.
      await new Promise<void>((resolve) => handle(setTimeout(resolve, PAUSE)).unref?.());
      this.#pausesUntil = 0;
      await this.tell(isTimed ? now : clamped(Date.now()));
    };
    this.#keepAlive(tell());
  }

  /** Tells what keys owe, and returns what idle ones hold. A store that takes several calls in one trip takes these. */
  async tell(now: number): Promise<void> {
    for (let isLast = false; !isLast; ) {
      const told = [];
      for (let due; told.length < TOLD_AT_ONCE_MAX && (due = this.#borrowers?.due(now)); ) told.push(due);
      isLast = told.length < TOLD_AT_ONCE_MAX;
      if (told.length === 0) return;
      const late = passing(this.#deadlineMs);
      // It may be of an earlier window of a calendar.
      const asks = ({ policy, key }: Question) => ({ ...ask(CHECK, current(policy, now), now), key, cost: 0 });
      const finished = told.map(({ asked, beside }) => this.#finish(asks(beside), asked, late, told.length));
      this.told?.();
      await Promise.all(finished);
    }
  }

  #inBackground(question: Question, loan: NumberedQuestion): void {
    this.#keepAlive(this.#finish(question, loan, passing(this.#deadlineMs)));
  }

  /** Asks what nobody waits for. If it fails, what is lent stays lent until its end, and what is owed is told again. */
  async #finish(question: Question, loan: NumberedQuestion, { signal, passed }: Passing, inFlight = 1): Promise<void> {
    const call = called(question, signal, inFlight);
    try {
      const asked = { what: this.words(question, loan.question, false), loan };
      for (let sent = this.begin(call, asked); sent; ) {
        const answered = sent.then(
          (answer): Answered => [answer, undefined],
          (thrown: unknown): Answered => [undefined, { thrown }],
        );
        const [answer, thrown] = await Promise.race([answered, passed]);
        sent = thrown ? this.failed(call, thrown.thrown) : this.read(call, answer);
      }
    } catch {
      this.#end(call);
    }
  }
}

/** What an answer resolves to, or what was thrown. */
type Answered = readonly [answer: unknown, thrown: { thrown: unknown } | undefined];

/** The deadline of what nobody waits for. Not every store can cancel a call. */
interface Passing {
  readonly signal: AbortSignal;
  readonly passed: Promise<Answered>;
}

function passing(ms: number): Passing {
  const signal = AbortSignal.timeout(ms);
  return { signal, passed: new Promise((resolve) => signal.addEventListener("abort", () => resolve([undefined, { thrown: signal.reason }]))) };
}
