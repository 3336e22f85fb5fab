import { ALLOWED, STATUS, UNKNOWN, WAIT } from "../../decision_numbers.js";
import { copied, decide, type Decision, overdraw, peek, refund } from "../decide.js";
import { later, MAX_INSTANT, MAX_SKEW, MAX_UNITS, since } from "../arithmetic.js";
import type { Policy } from "../policy.js";
import type { BucketState, Rule, State } from "../algorithms/algorithm.js";

// The lender of `tidegate-core`, on doubles. It is held to it by `test/core-lending.test.mjs`.

/**
 * How many loans have numbers of their own in a millisecond, so that a row that was removed uses none again in a later one. In the same one
 * it may: then a call that arrives after a reset may return another loan.
 */
const NUMBERS_PER_MS = 16;

const SIXTEENTHS = 16;

/** The longest life of a loan. */
export const LIFETIME_MAX = 60_000;

/** The least life of a loan near the limit: a borrower far away needs some tenths of a second to hear of it. */
const LIFE_MIN = 1_000;

/** The most loans of one key at a time. Further borrowers get none. */
export const LOANS_MAX = 64;

/** No loan is larger. So all products here are below 2^53, and exact. */
export const UNITS_MAX = 2 ** 32;

/** No borrower looks further back or ahead: it forgets half when it has asked for two lifetimes. */
export const WITHIN_MAX = 2 ** 18;

/** The codes of the rules that can be lent. */
const LENDABLE = ["fw", "sw", "tb", "cw"];

/** What a borrower asks along with a check. */
export interface LoanQuestion {
  /** The most units that the borrower wants to hold, with those that it keeps. */
  wanted: number;
  /** The time in which it expects to spend them. */
  within: number;
  /** What it has admitted without a loan, of its grace. It is charged first, also beyond the limit. */
  owed: number;
  /** The longest life of a loan or a denial. */
  lifetime: number;
  /** What becomes of the borrower's last loan. */
  back: Returned | undefined;
}

/** What becomes of a loan. The part that is neither given back nor kept was spent. */
export interface Returned {
  /** The number of the loan. */
  loan: number;
  /** Given back: the borrower will not spend it. */
  unspent: number;
  /** Kept: the borrower still spends it, and it becomes part of the next loan. */
  kept: number;
}

/** A part of a quota that the borrower may spend. */
export interface Loan {
  /** The number of the loan, for its return. */
  number: number;
  /** The units, with those that the borrower kept. */
  units: number;
  /** How long they may be spent from the instant at which the borrower asked. */
  lasts: number;
}

/** The lender's answer to a question. */
export interface LoanAnswer {
  decision: Decision;
  /** The next loan. Without one, what the borrower kept of the last one ends, too. */
  granted: Loan | undefined;
  /** How long the borrower may repeat a denial. 0 if the check was not denied. */
  deniesFor: number;
}

/** A loan as it is stored. */
export interface Lent {
  readonly number: number;
  readonly units: number;
  readonly until: number;
}

/** Whether loans of a policy can be granted. */
export function canLend({ dimensions, chargeDenied, quotas }: Policy): boolean {
  return dimensions.length === 1 && !chargeDenied && quotas.every(({ rule }) => LENDABLE.includes(rule.code));
}

/** What is wrong with a grace, if a key whose limit is less would get all of it by grace. */
export function tooMuchGrace(grace: number, policies: readonly (Policy | undefined)[], mins: readonly number[] = []): string | undefined {
  const least = Math.min(...mins, ...policies.flatMap((policy) => policy?.quotas.map(({ rule }) => rule.limit) ?? []));
  return grace > least ? `a grace of ${grace} is more than the limit of ${least}; write at most ${least}` : undefined;
}

/** The loans that the state of a row is charged with. A store keeps them beside the state, and settles them before each decision. */
export class Lender {
  /** Whether it must be stored, and not only because time has passed. */
  changed = false;
  /** The number of the last loan. */
  #last = 0;
  /** How many borrowers there are, in sixteenths. It follows a higher number at once and a lower one slowly. */
  #borrowers = 0;
  /** Ordered by their ends. */
  #loans: Lent[] = [];

  /** A lender of its `numbers`. Throws for others. */
  static fromNumbers(numbers: readonly number[]): Lender {
    const lender = new Lender();
    const [last, borrowers] = numbers;
    if (last === undefined) return lender;
    // A number that is missing is not in any range.
    let [fits, sum] = [last >= 1 && last <= Number.MAX_SAFE_INTEGER && borrowers! <= SIXTEENTHS * (LOANS_MAX + 1), 0];
    for (let at = 2; fits && at < numbers.length; at += 3) {
      const loan = { number: numbers[at]!, units: numbers[at + 1]!, until: numbers[at + 2]! };
      sum += loan.units;
      fits = loan.number >= 1 && loan.number <= last && loan.until >= lender.lastEnd && loan.until <= MAX_INSTANT && sum <= MAX_UNITS;
      lender.#loans.push(loan);
    }
    if (!fits || lender.#loans.length > LOANS_MAX) {
      throw ["corrupt", `stored loans: ${numbers.length} numbers are not those of loans; delete the key`];
    }
    [lender.#last, lender.#borrowers] = [last, borrowers!];
    return lender;
  }

  /** The last number and the borrowers, then for each loan its number, units and end. None if nothing was ever lent. */
  get numbers(): number[] {
    return this.isUnused ? [] : [this.#last, this.#borrowers, ...this.#loans.flatMap(({ number, units, until }) => [number, units, until])];
  }

  /** Whether nothing was ever lent. Such a row needs no lender. */
  get isUnused(): boolean {
    return this.#last === 0;
  }

  /** When the last loan ends; 0 if there is none. */
  get lastEnd(): number {
    return this.#loans.at(-1)?.until ?? 0;
  }

  /**
   * Brings a state to `now`, and forgets the loans that do not matter any more then. Ends that a wrong clock has set are moved to the
   * latest that is possible: the loans would hold a bucket's level for as long as that clock was ahead.
   */
  settle(policy: Policy, states: State[], now: number): void {
    const latest = later(now, LIFETIME_MAX + MAX_SKEW);
    if (this.lastEnd > latest) {
      this.#loans = this.#loans.map((loan) => ({ ...loan, until: Math.min(loan.until, latest) }));
      this.changed = true;
    }
    this.#bring(policy, states, now);
  }

  /**
   * Decides on a check, takes back the borrower's last loan and grants the next one. The state is settled at `now`. A policy that cannot
   * be lent gets a plain decision.
   */
  decide(policy: Policy, states: State[], now: number, cost: number, question: LoanQuestion): LoanAnswer {
    if (!canLend(policy)) {
      overdraw(policy, states, now, Math.min(question.owed, UNITS_MAX));
      return { decision: decide(policy, states, now, cost), granted: undefined, deniesFor: 0 };
    }
    const [decision, kept] = this.#decideAfterReturn(policy, states, now, cost, question);
    const lent = decision[STATUS] === ALLOWED ? this.#lend(policy, states, now, question, kept) : undefined;
    const loan = lent ?? (kept && this.#add(now, kept.units, kept.until));
    return this.#answer(now, question, decision, loan);
  }

  /**
   * What a lender elsewhere has answered, which had this state and these loans, and has granted `loan`. How much it lends is its own affair,
   * so that two versions of the package can share a store. Throws only for what would break the limit: a loan that is not charged to what
   * is left, that outlives a window or its longest life, that is larger than what is wanted, or whose number may have been used.
   */
  accept(policy: Policy, states: State[], now: number, cost: number, question: LoanQuestion, loan: Lent | undefined): LoanAnswer {
    const [decision, kept] = this.#decideAfterReturn(policy, states, now, cost, question);
    if (loan) {
      const isAllowed = decision[STATUS] === ALLOWED;
      const held = kept?.units ?? 0;
      const end = Math.max(isAllowed ? endOf(policy, states, now, question) : now, kept?.until ?? now);
      const isSafe =
        loan.number > this.#last &&
        loan.units > 0 &&
        loan.units <= Math.max(held, question.wanted) &&
        loan.until > now &&
        loan.until <= end &&
        (loan.units <= held || (isAllowed && decide(policy, states, now, loan.units - held)[STATUS] === ALLOWED));
      const [{ number, units }, lasts] = [loan, since(loan.until, now)];
      if (!isSafe) throw ["corrupt", `loan ${number}: the limit does not allow ${units} units for ${lasts} ms; what else writes to the store?`];
      this.#hold(loan);
    }
    return this.#answer(now, question, decision, loan);
  }

  /** Takes back the borrower's last loan, charges what it owes, and decides. Returns the part that the borrower keeps, too. */
  #decideAfterReturn(policy: Policy, states: State[], now: number, cost: number, { owed, back }: LoanQuestion): [Decision, Lent | undefined] {
    const kept = back && this.#takeBack(policy, states, now, back);
    overdraw(policy, states, now, Math.min(owed, UNITS_MAX));
    return [this.corrected(policy, states, now, cost, decide(policy, states, now, cost)), kept];
  }

  #answer(now: number, { lifetime }: LoanQuestion, decision: Decision, loan: Lent | undefined): LoanAnswer {
    const wait = decision[WAIT]!;
    return {
      decision,
      granted: loan && { number: loan.number, units: loan.units, lasts: since(loan.until, now) },
      // Until the first loan ends, which may have been returned by then.
      deniesFor: wait === UNKNOWN ? 0 : Math.min(wait, (this.#firstEnd(now) ?? Infinity) - now, lifetime),
    };
  }

  /** Gives a decision on a settled state the wait that loans make longer: a bucket does not drain below them. */
  corrected(policy: Policy, states: readonly State[], now: number, cost: number, decision: Decision): Decision {
    let wait = decision[WAIT]!;
    if (wait === UNKNOWN || this.lastEnd <= now) return decision;
    // Each round ends a loan or is the last one.
    for (let round = 0; round <= LOANS_MAX; round++) {
      const [then, after, loans] = [later(now, wait), copied(policy.quotas, states), new Lender()];
      loans.#loans = this.#loans;
      loans.settle(policy, after, then);
      const more = peek(policy, after, then, cost)[WAIT]!;
      if (more === UNKNOWN) break;
      const next = loans.#firstEnd(then);
      wait += next !== undefined && loans.#pins(policy, after, then, cost) ? Math.max(more, next - then) : more;
    }
    decision[WAIT] = wait;
    return decision;
  }

  /** Resets the state but for what is lent, which may still be spent. Returns false if nothing is, so that the row can be removed. */
  reset(policy: Policy, states: State[]): boolean {
    // A reset carries no time, so a window's loans count as lent until the window ends.
    this.#bring(policy, states, 0);
    policy.quotas.forEach(({ rule }, nth) => {
      const state = states[nth]!;
      if ("at" in state) state.level = Math.min(state.level, this.#lent(state.at) * rule.unit);
      else if ("used" in state) state.used = Math.min(state.used, this.#lent(windowOf(rule, state)![0]));
      else if ("current" in state) [state.current, state.previous] = [Math.min(state.current, this.#lent(state.start)), 0];
      if ("carried" in state) state.carried = rule.carryOver;
    });
    const from = latest(policy, states);
    this.#loans = this.#loans.filter(({ until }) => until > from);
    return this.#loans.length > 0;
  }

  /** Until a loan's end, a bucket did not drain below what was lent. Nor is a window used less than that, whose charges were refunded. */
  #bring({ quotas }: Policy, states: readonly State[], now: number): void {
    if (this.#loans.length === 0) return;
    quotas.forEach(({ rule }, nth) => {
      const state = states[nth]!;
      if ("at" in state) return this.#drain(rule, state, now);
      const window = windowOf(rule, state);
      if (!window) return;
      const used = this.#lent(...window);
      if ("used" in state) {
        state.used = Math.max(state.used, used);
      } else if ("current" in state) {
        state.current = Math.max(state.current, used);
        state.previous = Math.max(state.previous, this.#lent(since(state.start, rule.unit), state.start));
      }
    });
    this.#loans = this.#loans.filter(({ until }) => quotas.some(({ rule }, nth) => matters(rule, states[nth]!, until, now)));
  }

  /** Drains a bucket to `now`, or to what was lent if that is more, at each instant. */
  #drain(rule: Rule, state: BucketState, now: number): void {
    const [settled, end] = [state.at, Math.max(now, state.at)];
    let lent = this.#lent(settled);
    for (const { units, until } of this.#loans) {
      if (settled >= until || until > end) continue;
      drain(rule, state, until, lent);
      lent -= units;
    }
    drain(rule, state, end, lent);
  }

  /** Whether a bucket denies the cost that does not drain, because its level is what is lent of it. */
  #pins({ quotas }: Policy, states: readonly State[], now: number, cost: number): boolean {
    return quotas.some(({ rule }, nth) => {
      const state = states[nth]!;
      return "at" in state && state.level <= this.#lent(state.at) * rule.unit && rule.ask(state, now, cost) > 0;
    });
  }

  /** Takes back the unspent part of a loan, and returns the part that is kept. If the number is used up, nothing happens. */
  #takeBack(policy: Policy, states: State[], now: number, back: Returned): Lent | undefined {
    const place = this.#loans.findIndex(({ number }) => number === back.loan);
    if (place < 0) return undefined;
    const loan = this.#loans.splice(place, 1)[0]!;
    this.changed = true;
    const unspent = Math.min(back.unspent, loan.units);
    // It ended within its window. What a bucket has drained since may have been this loan.
    refund(policy, states, since(loan.until, 1), now, unspent);
    const units = Math.min(back.kept, loan.units - unspent);
    return units > 0 && loan.until > Math.max(latest(policy, states), now) ? { ...loan, units } : undefined;
  }

  /** Lends what the question asks for. What the borrower keeps becomes a part of it. */
  #lend(policy: Policy, states: State[], now: number, question: LoanQuestion, kept: Lent | undefined): Lent | undefined {
    const others = this.#loans.filter(({ until }) => until > now).length;
    if (others >= LOANS_MAX) return undefined;
    const [before, here] = [this.#borrowers, SIXTEENTHS * (others + 1)];
    this.#borrowers = Math.max(here, before - Math.ceil(since(before, here) / (2 * SIXTEENTHS)));
    this.changed ||= this.#borrowers !== before;
    const [end, rules] = [endOf(policy, states, now, question), policy.quotas.map(({ rule }) => rule)];
    const left = Math.min(UNITS_MAX, ...rules.map((rule, nth) => rule.remaining(states[nth]!, now)));
    const still = Math.min(kept?.units ?? 0, UNITS_MAX);
    const [units, life] = share(question, still, left, Math.ceil(this.#borrowers / SIXTEENTHS), since(end, now));
    const until = later(now, life);
    if (units === 0 || until <= now || decide(policy, states, now, units)[STATUS] !== ALLOWED) return undefined;
    return kept ? this.#add(now, units + kept.units, Math.max(until, kept.until)) : this.#add(now, units, until);
  }

  /** Adds a loan under a new number. */
  #add(now: number, units: number, until: number): Lent {
    const loan = { number: Math.max(now * NUMBERS_PER_MS, this.#last + 1), units, until };
    this.#hold(loan);
    return loan;
  }

  /** Adds a loan whose number is new. */
  #hold(loan: Lent): void {
    // The first one has ended. From now on it cannot be returned.
    if (this.#loans.length >= LOANS_MAX) this.#loans.shift();
    this.#last = loan.number;
    this.changed = true;
    const place = this.#loans.findIndex((held) => held.until > loan.until);
    this.#loans.splice(place < 0 ? this.#loans.length : place, 0, loan);
  }

  /** The end of the first loan that has not ended. */
  #firstEnd(now: number): number | undefined {
    return this.#loans.find(({ until }) => until > now)?.until;
  }

  /** What is lent by loans that end after `from`, at `to` at the latest. */
  #lent(from: number, to = MAX_INSTANT): number {
    let lent = 0;
    for (const { units, until } of this.#loans) if (from < until && until <= to) lent += units;
    return lent;
  }
}

/**
 * How many more units to lend, and for how long: what is wanted for the longest life, or a borrower's part of half of what is left for
 * twice the time that it takes to spend it.
 */
function share(question: LoanQuestion, kept: number, left: number, borrowers: number, longest: number): [units: number, life: number] {
  const [wanted, within] = [Math.min(question.wanted, UNITS_MAX), Math.min(question.within, WITHIN_MAX)];
  const [more, most] = [since(wanted, kept), Math.floor(left / (2 * borrowers))];
  if (more <= most) return [more, longest];
  return [most, Math.min(Math.max(LIFE_MIN, Math.floor((2 * (most + kept) * within) / wanted)), longest)];
}

/** Whether a loan that ends then still matters to a quota. */
function matters(rule: Rule, state: State, until: number, now: number): boolean {
  const { window } = rule;
  if ("at" in state) return later(until, window) > now;
  const known = windowOf(rule, state);
  if (!known) return false;
  const start = Math.max(rule.startOf(now), known[0]);
  return until > ("used" in state ? start : since(start, window));
}

/** The end of the first window to end, or that of the longest loan that a question allows. The decision has moved back what was ahead. */
function endOf({ quotas }: Policy, states: readonly State[], now: number, { lifetime }: LoanQuestion): number {
  const ends = quotas.map(({ rule }, nth) => windowOf(rule, states[nth]!)?.[1] ?? MAX_INSTANT);
  return Math.min(later(now, Math.min(lifetime, LIFETIME_MAX)), ...ends);
}

/** The latest instant of the states. Loans that ended before it are settled. */
function latest({ quotas }: Policy, states: readonly State[]): number {
  return Math.max(...states.map((state, nth) => ("at" in state ? state.at : (windowOf(quotas[nth]!.rule, state)?.[0] ?? 0))));
}

/** The start and the end of a state's window, if it has one. */
function windowOf(rule: Rule, state: State): [start: number, end: number] | undefined {
  if ("start" in state) return [state.start, later(state.start, rule.unit)];
  return "end" in state ? [rule.startOf(since(state.end, 1)), state.end] : undefined;
}

/** Drains a bucket to a later instant, but not below what is lent until then. A product that is rounded is past either bound. */
function drain({ unit, last }: Rule, state: BucketState, now: number, lent: number): void {
  state.level = Math.max(state.level - (now - state.at) * last, Math.min(lent * unit, MAX_UNITS));
  state.at = now;
}
