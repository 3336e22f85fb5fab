import { ALLOWED, BINDING, STATUS, UNKNOWN, WAIT } from "../../decision_numbers.js";
import { later, since } from "../arithmetic.js";
import type { Policy } from "../policy.js";
import { TokenBucket } from "../algorithms/buckets.js";
import { isUnmissed, wantedOf, type Usual } from "./amount.js";
import { Grace, seenIn } from "./grace.js";
import { canLend, type LoanAnswer, type LoanQuestion, type Returned } from "./lender.js";

/** How far readings of one clock may come in the wrong order. The borrower's clock may lag by this, so whatever ends by it ends earlier. */
export const JITTER = 20;

/** A borrower is idle after this time without a request, and after so many times of the usual time between two requests. */
const IDLE = 2_000;
const IDLE_GAPS = 16;

/** When what it owes is told again, if an answer is lost. */
const AGAIN = 4_000;

/** The upper bounds of loans, and how a borrower asks for them. */
export interface Lease {
  /** The most units that a borrower holds of a key. */
  readonly slice: number;
  /** The longest life of a loan, and of a denial. */
  readonly lifetime: number;
  /** When a question without an answer is given up. */
  readonly deadline: number;
  /** The most units of a key that a borrower admits before it has heard of the key. */
  readonly grace: number;
}

/** A question, and the number that its answer is told with. */
export interface Asked {
  nth: number;
  question: LoanQuestion;
}

/** What a check gets without the lender. */
export type Answer =
  /** It is admitted, and charged already. The next question is asked with a cost of 0, and nobody waits for its answer. */
  | { kind: "admit"; then: Asked | undefined }
  /** It is denied, as the lender has said of an equal check. */
  | { kind: "deny"; binding: number; retryAfter: number };

const ADMITTED: Answer = { kind: "admit", then: undefined };

/** It is admitted by grace, and the first of what the store is to be told. */
export const UNTOLD: Answer = { kind: "admit", then: undefined };

/** What a check gets. */
export type Verdict =
  | Answer
  /** The lender decides on it, and grants a loan along with the decision. */
  | { kind: "ask"; asked: Asked }
  /** The lender decides on it. Another question has the number `nth`, and its answer probably grants as many units as the last one. */
  | { kind: "plain"; nth: number; expects: number };

interface Held {
  readonly number: number;
  readonly units: number;
  left: number;
  /** What was left of it when the last question was asked, if it was kept. */
  kept: number;
  until: number;
  /** When it was last spent from. */
  usedAt: number;
  /** Whether others would miss what is not spent of it. */
  readonly isMissed: boolean;
  /** Whether something is left to return when it has ended: its windows have not. */
  readonly returns: boolean;
}

interface Denial {
  readonly cost: number;
  readonly binding: number;
  readonly until: number;
  /** When the check is admitted, if nothing else arrives. */
  readonly admittedAt: number;
}

/** Whether a check may be decided from a loan. */
export function canBorrow(policy: Policy, cost: number, token: string | undefined): boolean {
  return token === undefined && canLend(policy) && policy.quotas.every(({ rule }) => cost <= rule.limit);
}

/** What a borrower knows of one key. All instants are by one clock that does not go back, the borrower's own. */
export class Borrower {
  /** What the loan and the denial are of. */
  #policy: string;
  /** Whether it has a bucket. */
  #drains = false;
  /** The number of the last question, and whether its answer has not come. Meanwhile, requests spend what is left, or ask plainly. */
  #nth = 0;
  #waits = false;
  /** When it has last asked, or its first request. */
  askedAt: number;
  /** When its answer has come at the latest, or is given up. */
  #answeredBy = 0;
  /** When the question was asked that has the loan and the denial as its answer. */
  #knownFrom = 0;
  #askedCost = 0;
  #askedPolicy = "";
  /** Whether its denial is kept. */
  #keepsDenial = true;
  /** What it returns, in case that it does not arrive. */
  #back: Returned | undefined;
  #loan: Held | undefined;
  /** The units of the last loan. */
  #lent = 0;
  /** What was left when the last answer was given, or the limit if there was none. */
  #left = 0;
  #denial: Denial | undefined;
  /** When the requests began that are counted, and the last of them. */
  #since: number;
  #at = -Infinity;
  /** What they cost, without the first one. */
  #spent = 0;
  /** What they cost during the last question, and during earlier ones, which decays. */
  #meanwhile = 0;
  #before = 0;
  readonly grace = new Grace();
  /** What keys usually spend. */
  readonly #usual: Usual;

  /** A key's borrower, before its first request. */
  constructor(policy: Policy, now: number, usual: Usual) {
    this.askedAt = this.#since = now;
    this.#usual = usual;
    this.#policy = this.#change(policy);
  }

  /** Whether it is of another policy, such as the same one before a change of its limits. */
  isOfAnother(policy: Policy): boolean {
    return this.#policy !== identity(policy);
  }

  /**
   * What a check gets at `now` without the lender: from its loan, by its last denial, or by grace. If that is nothing, nothing has happened.
   * A question has the number `nth`. A check that has waited for an answer says until when: it was counted when it came.
   */
  answer(policy: Policy, cost: number, lease: Lease, now: number, nth: number, waitedUntil?: number): Answer | undefined {
    // What was granted may have ended during the wait. What is asked has the check's own time, as the lender sees it.
    const then = waitedUntil ?? now;
    const loan = this.#loan;
    const denial = this.#denial;
    if (this.isOfAnother(policy)) return undefined;
    // If the clock was set forward during the wait, what was asked since looks newer than it is.
    if (waitedUntil !== undefined && this.#knownFrom > later(now, JITTER)) return undefined;
    if (loan && then < loan.until && loan.left > 0 && loan.left >= cost) {
      const isBusy = this.#isWaiting(lease, now);
      if (waitedUntil === undefined) this.#count(cost, isBusy, lease, now);
      loan.left -= cost;
      loan.usedAt = then;
      const mark = Math.min(Math.max(this.#meanwhile, this.#before), Math.floor(loan.units / 2));
      // A request that comes long after this one is admitted by grace, and what tells it asks for the next loan, too.
      const isInNoHurry = this.#gap(now) >= IDLE && this.grace.wouldAdmit(1, lease.grace, now);
      const isLow = loan.left < mark || (loan.left === mark && !isInNoHurry);
      return isLow && !isBusy ? { kind: "admit", then: this.#ask(loan, lease, now, nth) } : ADMITTED;
    }
    if (denial && denial.cost === cost && then < denial.until) {
      if (waitedUntil === undefined) this.#count(cost, this.#isWaiting(lease, now), lease, now);
      return { kind: "deny", binding: denial.binding, retryAfter: since(denial.admittedAt, then) };
    }
    const { grace } = this;
    const isFirst = grace.owed === grace.told;
    if (waitedUntil !== undefined || !grace.admits(cost, lease.grace, now)) return undefined;
    this.#count(cost, this.#isWaiting(lease, now), lease, now);
    return isFirst ? UNTOLD : ADMITTED;
  }

  /** What a check gets at `now`. */
  decide(policy: Policy, cost: number, lease: Lease, now: number, nth: number, waitedUntil?: number): Verdict {
    if (this.isOfAnother(policy)) {
      this.#policy = this.#change(policy);
      this.grace.change(now, later(now, lease.lifetime));
    }
    const answer = this.answer(policy, cost, lease, now, nth, waitedUntil);
    if (answer) return answer;
    const isBusy = this.#isWaiting(lease, now);
    if (waitedUntil === undefined) this.#count(cost, isBusy, lease, now);
    return isBusy ? { kind: "plain", nth: this.#nth, expects: this.#lent } : { kind: "ask", asked: this.giveUp(cost, lease, now, nth) };
  }

  /** Forgets the denial, because what denied may have been given back. Nor is the one kept that is under way. */
  forgetDenial(): void {
    this.#denial = undefined;
    this.#keepsDenial = false;
  }

  /** Whether the answer to this question is still waited for. */
  isWaitingFor(nth: number): boolean {
    return this.#waits && this.#nth === nth;
  }

  /** Asks for the next loan, and returns what is left of this one. */
  giveUp(cost: number, lease: Lease, now: number, nth: number): Asked {
    if (this.#loan) this.#back = { loan: this.#loan.number, unspent: this.#loan.left, kept: 0 };
    this.#loan = undefined;
    return this.#asked(cost, lease, now, nth);
  }

  /**
   * Takes the answer to a question, or none if there is none. If another question was asked since, the answer is late, and its loan is not
   * spent.
   */
  answered(nth: number, answer: LoanAnswer | undefined): void {
    if (nth !== this.#nth) return;
    this.#waits = false;
    if (!answer) return this.grace.lost();
    const { decision, granted, deniesFor } = answer;
    const [from, last, wait, seen] = [this.askedAt, this.#loan, decision[WAIT]!, seenIn(decision)];
    this.grace.answered(decision[STATUS] === ALLOWED, seen, from, this.#answeredBy);
    this.#back = undefined;
    [this.#left, this.#lent, this.#knownFrom] = [seen[0], granted?.units ?? 0, from];
    this.#loan = granted && {
      number: granted.number,
      units: granted.units,
      left: since(granted.units, last ? since(last.kept, last.left) : 0),
      kept: 0,
      until: later(from, since(granted.lasts, JITTER)),
      usedAt: Math.max(last?.usedAt ?? 0, from),
      isMissed: !isUnmissed(granted.units, this.#left),
      returns: this.#drains || granted.lasts < seen[2],
    };
    this.#denial =
      wait !== UNKNOWN && this.#keepsDenial
        ? { cost: this.#askedCost, binding: decision[BINDING]!, until: later(from, deniesFor), admittedAt: later(from, wait) }
        : undefined;
    // The policy has changed since, as between two tiers of a client.
    if (this.#askedPolicy !== this.#policy) this.#end();
  }

  /** Whether it has something to tell: units that it owes, or that it is idle and returns its loan. */
  isDue(lease: Lease, now: number): boolean {
    if (this.#isWaiting(lease, now)) return false;
    if (this.grace.owed > 0) return !this.grace.isLost || now >= later(this.askedAt, AGAIN);
    const loan = this.#loan;
    if (!loan?.isMissed || loan.left === 0) return false;
    return now < loan.until ? now >= later(loan.usedAt, Math.max(IDLE, this.#gap(now) * IDLE_GAPS)) : loan.returns;
  }

  /** Whether it knows anything that matters after `now`. */
  isOfUse(lease: Lease, now: number): boolean {
    // A denial and a loan that may be spent end within a lifetime of the last request.
    if (now < later(this.#at, lease.lifetime) || this.grace.owed > 0 || this.#isWaiting(lease, now)) return true;
    const loan = this.#loan;
    return loan !== undefined && loan.left > 0 && loan.returns && now < later(loan.until, lease.lifetime);
  }

  /** A question whose request was cancelled may never end. */
  #isWaiting({ deadline }: Lease, now: number): boolean {
    return this.#waits && now < later(this.askedAt, deadline);
  }

  /** Takes another policy. Returns its identity. */
  #change(policy: Policy): string {
    this.#drains = policy.quotas.some(({ rule }) => rule instanceof TokenBucket);
    this.#left = Math.min(...policy.quotas.map(({ rule }) => rule.limit));
    this.#end();
    return identity(policy);
  }

  /** Ends the denial and the loan, whose rest is returned with the next question. */
  #end(): void {
    this.#denial = undefined;
    if (this.#loan) this.#loan.until = 0;
  }

  /** Asks for the next loan before this one is spent. */
  #ask(loan: Held, lease: Lease, now: number, nth: number): Asked {
    loan.kept = loan.left;
    this.#back = { loan: loan.number, unspent: 0, kept: loan.left };
    return this.#asked(0, lease, now, nth);
  }

  #asked(cost: number, { slice, lifetime, deadline }: Lease, now: number, nth: number): Asked {
    const [past, owed, usual] = [since(now, this.#since), this.grace.tell(cost), this.#usual.units()];
    const asksForUsual = this.#spent === 0 && owed > 0 && usual > 0;
    const [wanted, within] = wantedOf(asksForUsual ? usual : this.#spent, asksForUsual ? lifetime : past, this.#left, slice, lifetime);
    const question = { wanted, within, owed, lifetime, back: this.#back };
    // What is long ago counts less and less.
    this.#before = Math.max(this.#meanwhile, this.#before - Math.ceil(this.#before / 8));
    this.#meanwhile = 0;
    const half = Math.floor(past / 2);
    if (half >= lifetime) [this.#spent, this.#since] = [Math.floor(this.#spent / 2), this.#since + half];
    [this.#nth, this.#waits, this.askedAt, this.#keepsDenial] = [nth, true, now, true];
    [this.#askedCost, this.#askedPolicy, this.#answeredBy] = [cost, this.#policy, later(now, deadline + JITTER)];
    return { nth, question };
  }

  /** The usual time between two requests. */
  #gap(now: number): number {
    return Math.floor(since(now, this.#since) / Math.max(this.#spent, 1));
  }

  #count(cost: number, isBusy: boolean, { lifetime }: Lease, now: number): void {
    const isFirst = now >= later(this.#at, lifetime);
    this.#at = now;
    if (isFirst) {
      // The first request begins the time.
      [this.#since, this.#spent] = [now, 0];
      return this.#usual.begin();
    }
    this.#usual.count(this.#spent, cost);
    this.#spent = sum(this.#spent, cost);
    if (isBusy) this.#meanwhile = sum(this.#meanwhile, cost);
  }
}

/** No lender tells apart what is more. */
function sum(one: number, other: number): number {
  return Math.min(one + other, Number.MAX_SAFE_INTEGER);
}

const identities = new WeakMap<Policy, string>();

/** A text that differs for policies that count differently. */
function identity(policy: Policy): string {
  let text = identities.get(policy);
  if (text === undefined) {
    text = policy.quotas.map(({ rule: { code, amount, unit, last } }) => [code, amount, unit, last]).join();
    identities.set(policy, text);
  }
  return text;
}
