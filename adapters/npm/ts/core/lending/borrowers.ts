import { later, MAX_INSTANT, since } from "../arithmetic.js";
import type { Policy } from "../policy.js";
import { Usual } from "./amount.js";
import { type Answer, type Asked, Borrower, JITTER, type Lease, UNTOLD, type Verdict } from "./borrower.js";
import type { LoanAnswer } from "./lender.js";

/** Fewer keys than this are never swept. */
const SWEEP_MIN = 64;

/** The most keys. */
const KEYS_MAX = 32_768;

/** The time between two looks for borrowers that have something to tell. */
const LOOK = 1_000;

/**
 * The furthest that one reading advances the clock. Loans, denials and questions have ended long before. Only a key that was near its limit
 * gets no grace for longer than it must, if a process has slept for so long.
 */
const LEAP_MAX = 86_400_000;

const PLAINLY: Verdict = { kind: "plain", nth: 0, expects: 0 };

/**
 * What an isolate or a process knows of the keys that it borrows, in bounded memory: checks of further keys ask plainly. `T` is what the
 * host keeps beside each key, to ask a question that no check brings.
 */
export class Borrowers<T> {
  readonly #lease: Lease;
  /** The same without a grace. */
  readonly #graceless: Lease;
  readonly #keys = new Map<string, { borrower: Borrower; beside: T }>();
  /** The number of the last question of all keys: an answer to one of a key that was dropped is late. */
  #asked = 0;
  /** The number of keys at which those that are no longer of use are dropped. */
  #sweepAt = SWEEP_MIN;
  #sweptAt = 0;
  /** Keys that may have something to tell. */
  #due: string[] = [];
  #lookedAt = 0;
  /**
   * A clock that does not go back: the latest instant, by how much it is ahead of the clock that may be set, and where it was at the last leap.
   * What was read before is not known to be earlier.
   */
  #latest = 0;
  #ahead = 0;
  #leaptFrom = 0;
  /** Whether the store has answered the last question. While it does not, no key gets a grace. */
  #isUp = true;
  /** What a key usually spends: the first report asks for it. */
  readonly #usual = new Usual();
  /** When new keys get a grace again: some that should have none were forgotten for want of room. */
  #graceFrom = 0;

  constructor(lease: Lease) {
    this.#lease = lease;
    this.#graceless = { ...lease, grace: 0 };
  }

  /** What a check of this key gets without the lender: see `decide`. If that is nothing, nothing has happened. */
  answer(key: string, policy: Policy, cost: number, told: number): Answer | undefined {
    const borrower = this.#keys.get(key)?.borrower;
    if (!borrower) return undefined;
    const now = this.#read(told);
    // At the last instant a clock stands still. No loan would end.
    const answer = told === MAX_INSTANT ? undefined : borrower.answer(policy, cost, this.#given, now, this.#asked + 1);
    if (answer) this.#asked += 1;
    return this.#noted(key, answer);
  }

  /** The lease by which keys are decided now. */
  get #given(): Lease {
    return this.#isUp ? this.#lease : this.#graceless;
  }

  /**
   * What a check of this key gets. Its time is read just before, its policy can be lent, and it has no token. `beside` is kept beside a
   * new key, or one whose policy has changed. `waited` is how long a check that was decided on before has waited for an answer. At the last
   * instant it is asked plainly.
   */
  decide(key: string, policy: Policy, cost: number, told: number, beside: T, waited?: number): Verdict {
    // If the clock was set since, the check was not asked later than now, and not before a leap.
    const now = waited === undefined ? this.#read(told) : Math.min(this.#latest, Math.max(this.#by(told), this.#leaptFrom));
    const until = waited === undefined ? undefined : this.#atLeast(later(told, waited));
    if (told === MAX_INSTANT) return PLAINLY;
    const nth = ++this.#asked;
    const kept = this.#keys.get(key);
    if (kept) {
      if (kept.borrower.isOfAnother(policy)) kept.beside = beside;
      return this.#noted(key, kept.borrower.decide(policy, cost, this.#given, now, nth, until));
    }
    if (!this.#hasRoom(now)) return PLAINLY;
    const borrower = new Borrower(policy, now, this.#usual);
    this.#keys.set(key, { borrower, beside });
    return this.#noted(key, borrower.decide(policy, cost, now < this.#graceFrom ? this.#graceless : this.#given, now, nth));
  }

  /** Notes a key whose store is to be told. */
  #noted<V extends Verdict | undefined>(key: string, verdict: V): V {
    if (verdict === UNTOLD && this.#due.length < KEYS_MAX) this.#due.push(key);
    return verdict;
  }

  /** Takes the answer to a key's question, or notes that there is none: it failed, or was dropped. */
  answered(key: string, nth: number, answer: LoanAnswer | undefined): void {
    // That a question has no answer which was given up tells nothing: the store may have answered since.
    if (answer || this.isWaiting(key, nth)) this.#isUp = answer !== undefined;
    this.#keys.get(key)?.borrower.answered(nth, answer);
  }

  /** Forgets a key's denial. Call it when a settlement or a reset may have given back what denied. */
  forgetDenial(key: string): void {
    this.#keys.get(key)?.borrower.forgetDenial();
  }

  /** Whether the answer to a key's question is still waited for. */
  isWaiting(key: string, nth: number): boolean {
    return this.#keys.get(key)?.borrower.isWaitingFor(nth) ?? false;
  }

  /**
   * A question that nobody waits for, with its key: a borrower tells what it owes, or an idle one returns its loan. It is asked with a cost
   * of 0. Call it again until it returns nothing. It looks for idle borrowers once a second.
   */
  due(told: number): { key: string; asked: Asked; beside: T } | undefined {
    const now = this.#look(told);
    if (now === undefined) return undefined;
    for (let key = this.#due.pop(); key !== undefined; key = this.#due.pop()) {
      const kept = this.#keys.get(key);
      if (!kept?.borrower.isDue(this.#lease, now)) continue;
      const lease = kept.borrower.grace.owed > 0 ? this.#lease : { ...this.#lease, slice: 0 };
      return { key, asked: kept.borrower.giveUp(0, lease, now, ++this.#asked), beside: kept.beside };
    }
    return undefined;
  }

  /** Whether `due` may have a question. */
  mayBeDue(told: number): boolean {
    return this.#look(told) !== undefined && this.#due.length > 0;
  }

  /** Looks for keys that have something to tell. Returns the time, if there is one. */
  #look(told: number): number | undefined {
    const now = this.#advance(told);
    if (told === MAX_INSTANT) return undefined;
    if (since(now, this.#lookedAt) < LOOK) return now;
    this.#lookedAt = now;
    this.#due = [];
    // One question finds out whether the store is back. The next one is of another key, as those of one may always fail.
    let [probe, first]: [string | undefined, number] = [undefined, 0];
    for (const [key, { borrower }] of this.#keys) {
      if (!borrower.isDue(this.#lease, now)) continue;
      const { askedAt, grace } = borrower;
      if (this.#isUp || grace.owed === 0) this.#due.push(key);
      else if (probe === undefined || askedAt < first || (askedAt === first && key < probe)) [probe, first] = [key, askedAt];
    }
    if (probe !== undefined) this.#due.push(probe);
    return now;
  }

  /**
   * The time by a clock that may be set. When it is set back, this one goes on from where it was; when it is set forward, so is this one, by
   * `LEAP_MAX` at most: a clock that has told the end of time once must not keep it there.
   */
  #read(told: number): number {
    if (since(this.#latest, this.#by(told)) > JITTER) this.#ahead = this.#latest - told;
    return this.#advance(told);
  }

  /** The time, where the clock was read some time ago: it does not look as if it was set back. */
  #advance(told: number): number {
    const most = later(this.#latest, LEAP_MAX);
    if (this.#by(told) > most) [this.#leaptFrom, this.#ahead] = [this.#latest, most - told];
    return (this.#latest = this.#atLeast(told));
  }

  /** The same for a time that is computed, which does not count as a reading. */
  #atLeast(told: number): number {
    return Math.max(this.#latest, Math.min(this.#by(told), this.#latest + LEAP_MAX));
  }

  #by(told: number): number {
    return later(told, this.#ahead);
  }

  /**
   * Makes room for one more key. Keys are swept when their number has doubled since the last time; when they are as many as there may be,
   * once in a lifetime.
   */
  #hasRoom(now: number): boolean {
    const [keys, isFull] = [this.#keys, this.#keys.size >= KEYS_MAX];
    if (keys.size >= this.#sweepAt && (!isFull || since(now, this.#sweptAt) >= this.#lease.lifetime)) {
      for (const [key, { borrower }] of keys) {
        const { until } = borrower.grace;
        const suspects = this.#lease.grace > 0 && now < until;
        if (borrower.isOfUse(this.#lease, now) || (suspects && !isFull)) continue;
        if (suspects) this.#graceFrom = Math.max(until, this.#graceFrom);
        keys.delete(key);
      }
      this.#sweepAt = Math.min(Math.max(keys.size * 2, SWEEP_MIN), KEYS_MAX);
      this.#sweptAt = now;
    }
    return keys.size < KEYS_MAX;
  }
}
