import { type Asked, type Asking, type Borrowing, type NumberedQuestion, waits } from "./asking.js";
import { handle } from "./calls.js";
import { KEY_LEN_MAX } from "./command_cache.js";
import { withoutCounts } from "./core/decide.js";
import { keyOf } from "./core/key.js";
import { type Answer, canBorrow } from "./core/lending/borrower.js";
import { Borrowers } from "./core/lending/borrowers.js";
import { canLend, type LoanAnswer, tooMuchGrace } from "./core/lending/lender.js";
import { current } from "./core/policy.js";
import { invalid } from "./error.js";
import { ALLOWED, DENIED, FROM_DENY_CACHE, FROM_LEASE, UNKNOWN } from "./decision_numbers.js";
import { Waiters } from "./loan_waiters.js";
import { ask, CHECK, clamped, type Lease, type Question, SETTLE, timed } from "./question.js";
import { type Call, called } from "./store.js";

/** The options of who borrows. */
export interface Lending extends Lease {
  deadlineMs: number;
  keepAlive: (work: Promise<unknown>) => void;
  /** Whether requests may wait for each other. */
  mayWait: boolean;
}

/** How long what can be told together waits, in milliseconds. */
const PAUSE = 100;

/** The most that is told at once. */
const TOLD_AT_ONCE_MAX = 256;

/** What this isolate or process borrows of a store. */
export class StoreBorrowing implements Borrowing {
  readonly #store: Asking<unknown>;
  /** The borrower of each key, with a question about it. */
  readonly #borrowers: Borrowers<Question>;
  readonly #waiters = new Waiters();
  readonly #keepAlive: Lending["keepAlive"];
  readonly #deadlineMs: number;
  readonly #mayWait: boolean;
  /** Until when another request waits for what can be told together. A platform may drop it, if it was cancelled. */
  #pausesUntil = 0;

  constructor(store: Asking<unknown>, { slice, lifetimeMs, grace, keepAlive, deadlineMs, mayWait }: Lending) {
    const { policy } = store.core;
    const wrong = canLend(policy) && tooMuchGrace(grace, [policy]);
    if (wrong) throw invalid("leases.grace", wrong);
    this.#store = store;
    this.#borrowers = new Borrowers({ slice, lifetime: lifetimeMs, deadline: deadlineMs, grace });
    this.#keepAlive = keepAlive;
    this.#deadlineMs = deadlineMs;
    this.#mayWait = mayWait;
  }

  answer(question: Question): boolean {
    if (!this.#mayBorrow(question)) return false;
    const { now, cost } = question;
    const answer = this.#borrowers.answer(this.#nameOf(question), question.policy, cost, now);
    if (answer) this.#decided(question, answer);
    this.#tellSoon(question);
    return answer !== undefined;
  }

  send(call: Call): Promise<unknown> | undefined {
    const asked = this.#ask(call.question, this.#mayWait);
    this.#tellSoon(call.question);
    if (asked instanceof Promise) return waits(call, asked, true);
    return asked && this.guarded(call, () => this.#kept(asked, this.#store.begin(call, asked)));
  }

  late(call: Call): void {
    this.#end(call);
  }

  /** What was granted may not be enough for all that have waited for it, and none waits twice. */
  goOn(call: Call): Promise<unknown> | undefined {
    const waited = call.noted === true ? Math.ceil(performance.now() - call.note) : undefined;
    if (waited === undefined) timed(call.question);
    const asked = this.#ask(call.question, false, waited) as Asked<unknown> | undefined;
    this.#tellSoon(call.question);
    return asked && this.guarded(call, () => this.#store.begin(call, asked));
  }

  /** A settlement, a block or a reset is noted, too. */
  guarded(call: Call, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    let isOver = true;
    try {
      const sent = step();
      isOver = sent === undefined && call.question.kind >= SETTLE;
      return sent;
    } finally {
      if (isOver) this.#end(call);
    }
  }

  lent(question: Question, { nth }: NumberedQuestion, answer: LoanAnswer): void {
    this.#borrowers.answered(this.#nameOf(question), nth, answer);
    this.#waiters.end(nth);
  }

  /** Tells what keys owe, and returns what idle ones hold. A store that takes several calls in one trip takes these. */
  async tell(now: number): Promise<void> {
    for (let isLast = false; !isLast; ) {
      const told = [];
      for (let due; told.length < TOLD_AT_ONCE_MAX && (due = this.#borrowers.due(now)); ) told.push(due);
      isLast = told.length < TOLD_AT_ONCE_MAX;
      if (told.length === 0) return;
      const late = passing(this.#deadlineMs);
      // It may be of an earlier window of a calendar.
      const asks = ({ policy, key }: Question) => ({ ...ask(CHECK, current(policy, now), now), key, cost: 0 });
      const finished = told.map(({ asked, beside }) => this.#finish(asks(beside), asked, late, told.length));
      this.#store.told?.();
      await Promise.all(finished);
    }
  }

  /** Keeps a borrower's question alive, even if its request is aborted: the loan would be lost with the answer. */
  #kept(asked: Asked<unknown>, sent: Promise<unknown> | undefined): Promise<unknown> | undefined {
    if (asked.loan && sent) this.#keepAlive(sent.catch(() => undefined));
    return sent;
  }

  /** What a question asks. Undefined if it is decided, and a promise if it waits for another one's answer. */
  #ask(question: Question, mayWait: boolean, waited?: number): Asked<unknown> | Promise<unknown> | undefined {
    if (!this.#mayBorrow(question)) return this.#store.plain(question);
    this.#store.core.verify(question);
    const { policy, now, cost } = question;
    const verdict = this.#borrowers.decide(this.#nameOf(question), policy, cost, now, question, waited);
    if (verdict.kind === "admit" || verdict.kind === "deny") {
      this.#decided(question, verdict);
      return undefined;
    }
    if (verdict.kind === "plain" && mayWait) {
      const ended = this.#waiters.join(verdict.nth, cost, verdict.expects);
      if (ended) return ended;
    }
    const loan = verdict.kind === "ask" ? verdict.asked : undefined;
    return { what: this.#store.words(question, loan?.question, false), loan };
  }

  #mayBorrow({ kind, policy, cost, key, token }: Question): boolean {
    return kind === CHECK && key.length <= KEY_LEN_MAX && canBorrow(policy, cost, token);
  }

  /** Leaves the decision of a borrower. */
  #decided(question: Question, answer: Answer): void {
    const [{ core }, { policy }] = [this.#store, question];
    if (answer.kind === "deny") {
      core.decision = withoutCounts(policy, DENIED, answer.binding, answer.retryAfter, question.now, FROM_DENY_CACHE);
      return;
    }
    core.decision = withoutCounts(policy, ALLOWED, 0, UNKNOWN, question.now, FROM_LEASE);
    if (answer.then) this.#inBackground({ ...question, cost: 0 }, answer.then);
  }

  /** The name of a key in the borrowers of this policy. */
  #nameOf({ key }: Question): string {
    return keyOf(key, this.#store.core.policy.isOfGate);
  }

  /** Notes that a call has ended: without an answer, or it has been read. */
  #end({ question, noted }: Call): void {
    const name = this.#nameOf(question);
    const { loan } = (noted ?? {}) as Partial<Asked<unknown>>;
    if (loan) {
      this.#borrowers.answered(name, loan.nth, undefined);
      this.#waiters.end(loan.nth);
    }
    // It gives back what may have denied a check.
    if (question.kind >= SETTLE) this.#borrowers.forgetDenial(name);
  }

  /** Has what can be told together wait for a pause, unless another request waits for it. */
  #tellSoon({ now, isTimed }: Question): void {
    if (!this.#borrowers.mayBeDue(now)) return;
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

  #inBackground(question: Question, loan: NumberedQuestion): void {
    this.#keepAlive(this.#finish(question, loan, passing(this.#deadlineMs)));
  }

  /** Asks what nobody waits for. If it fails, what is lent stays lent until its end, and what is owed is told again. */
  async #finish(question: Question, loan: NumberedQuestion, { signal, passed }: Passing, inFlight = 1): Promise<void> {
    const call = called(question, signal, inFlight);
    try {
      const asked = { what: this.#store.words(question, loan.question, false), loan };
      for (let sent = this.#store.begin(call, asked); sent; ) {
        const answered = sent.then(
          (answer): Answered => [answer, undefined],
          (thrown: unknown): Answered => [undefined, { thrown }],
        );
        const [answer, thrown] = await Promise.race([answered, passed]);
        sent = thrown ? this.#store.failed(call, thrown.thrown) : this.#store.read(call, answer);
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
