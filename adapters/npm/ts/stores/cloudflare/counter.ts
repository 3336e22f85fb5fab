import { block, copied, decide, type Decision, expiresAfter, grant, NO_CHARGE, peek, refund, settle, unused, verify } from "../../core/decide.js";
import { later, MAX_INSTANT, since } from "../../core/arithmetic.js";
import { Lender, type LoanAnswer } from "../../core/lending/lender.js";
import type { Part, Policy } from "../../core/policy.js";
import type { Lot, State } from "../../core/algorithms/algorithm.js";
import { balanceOf } from "../../core/valid_question.js";
import { TidegateError } from "../../error.js";
import { ALLOWED, AT, REPLAY, STATUS } from "../../decision_numbers.js";
import { Cache } from "./cache.js";
import { areReadable, areSame, decisionOf, lenderOf, longs, put, Reader, statesOf, written, writtenDecision } from "../../core/codec.js";
import { leasedOf, type Named, type Row, rowOf, type Rows, valueOf } from "./rows.js";
import { answersTogether, apart, BLOCK, type Call, Calls, CHECK, costOf, DELETE, GRANT, hashOf, idOf, LEND, PEEK, REFUND, RELEASE, writtenAnswer, writtenError } from "./wire.js";

/** The least time between two sweeps. */
const PAUSE_MIN = 60_000;

/** The first byte of a stored answer to a token, whose charge is not settled, or is. */
const CHARGED = "10";
const SETTLED = "11";

/** That of a charge of which a balance paid a part, and that of a grant. */
const PAID = "12";
const GRANTED = "20";

/** Where a stored answer has the lots that paid. */
const LOTS_AT = 34;

/** The error of a token that is used twice. */
const REUSED = ["token_reused", "this idempotency token belongs to a charge of another cost; use one token for each request"];

/** What remains after a part of a sweep: no row, some rows, or more rows to look at. */
export const NOTHING = 0;
export const SOME = 1;
export const MORE = 2;

/** A sweep in progress. */
interface Sweeping {
  /** The last name of the pages before. */
  readonly after: string | undefined;
  /** The rows that remain of those pages. */
  readonly kept: number;
  /** When the first of them expires, and of those written since. */
  next: number | undefined;
}

/** A row that a call has found, with its loans taken into account. */
interface Found {
  /** When it may be removed. Undefined if there is no such row, so that its state is unused. */
  readonly expires: number | undefined;
  /** Its states before the call. */
  readonly before: readonly State[];
  /** What is lent of them. Undefined if nothing ever was. */
  lender: Lender | undefined;
}

/** The states of a row by a policy. Nothing changes them: a call changes a copy. */
interface Read {
  readonly row: Row;
  readonly part: Policy;
  readonly states: readonly State[];
}

/** The first answer to a check with a token, and what it charged. */
interface First {
  readonly row: Row;
  /** The cost, in digits. */
  readonly units: string;
  readonly isSettled: boolean;
  /** What a balance has paid of it. */
  readonly paid: readonly Lot[] | undefined;
  /** Where the row has the decision. */
  readonly decisionAt: number;
  readonly decision: Decision;
}

/**
 * The counts of one object: its rows, with recently used ones in memory. Every change is written to the rows before it is kept in memory,
 * so that a counter may be dropped at any moment.
 */
export class Counter {
  readonly #rows: Rows;
  readonly #calls: Calls;
  #cache = new Cache();
  /** What was read of the rows of the last calls, by their place in a call. Most calls have the same rows as the one before. */
  readonly #read: Read[] = [];
  /** When the pending alarm fires. */
  #alarm: number | undefined;
  #pause = PAUSE_MIN;
  #sweeping: Sweeping | undefined;

  /** A counter over rows, which may be those of an earlier one. `alarm` is when the object's pending alarm fires. `balances`: see `Calls`. */
  constructor(rows: Rows, alarm: number | undefined, balances?: Part) {
    this.#rows = rows;
    this.#calls = new Calls(balances);
    this.#alarm = alarm;
  }

  /** Answers a call at `clock`, the object's time, or several, each in a step of its own. */
  answer(question: string, clock: number): string {
    return orError(() => {
      const calls = apart(question);
      const one = (text: string) => {
        const call = this.#calls.read(text);
        return writtenAnswer(this.#apply(call, clock), call.policy);
      };
      return calls ? answersTogether(calls.map((call) => orError(() => one(call)))) : one(question);
    });
  }

  /**
   * Removes expired rows from the next page of rows. Call it when the alarm fires, and again as long as there are more; calls may be answered
   * between. After the last page it sets the next alarm: a sweep reads every row, so the next one waits for at least a millisecond for each
   * row that remains. If the storage fails, it throws, and the next call begins a new sweep.
   */
  sweep(clock: number): typeof NOTHING | typeof SOME | typeof MORE {
    const { after, kept, next } = this.#sweeping ?? { after: undefined, kept: 0, next: undefined };
    this.#sweeping = this.#alarm = undefined;
    const page = this.#rows.sweep(clock, after);
    const [all, first] = [kept + page.kept, earlier(next, page.next)];
    if (page.last !== undefined) {
      this.#sweeping = { after: page.last, kept: all, next: first };
      return MORE;
    }
    this.#pause = Math.max(PAUSE_MIN, all);
    if (first !== undefined) {
      this.#wakeAt(Math.max(first, later(clock, this.#pause)));
    } else if (all === 0) {
      this.#cache = new Cache();
      return NOTHING;
    }
    return SOME;
  }

  #apply(call: Call, clock: number): LoanAnswer {
    const { action, policy, cost, extra, now = clock } = call;
    switch (action) {
      case CHECK:
      case LEND:
        return this.#check(call, now, clock);
      case PEEK: {
        const { found, states } = this.#find(call, now);
        return plain(corrected(call, found, states, now, peek(policy, states, now, cost)));
      }
      case REFUND:
        return this.#change(call, now, clock, (states) => refund(policy, states, extra, now, cost));
      case BLOCK:
        return this.#change(call, now, clock, (states) => block(policy, states, now, extra));
      case GRANT:
        return this.#grant(call, now, clock);
      case DELETE:
        return this.#delete(call, now, clock);
      default:
        return this.#settle(call, now, clock);
    }
  }

  #check(call: Call, now: number, clock: number): LoanAnswer {
    const { policy, once, cost, units, loan, rows } = call;
    const name = once && onceName(once.token, rows);
    const first = name === undefined ? undefined : this.#first(name, policy, now);
    if (first) {
      if (first.units !== units) throw REUSED;
      first.decision[REPLAY] = 1;
      return plain(first.decision);
    }
    const { found, states } = this.#find(call, now);
    const [row] = found as [Found];
    let answer: LoanAnswer;
    if (loan && found.length === 1) {
      row.lender ??= new Lender();
      answer = row.lender.decide(policy, states, now, cost, loan);
    } else {
      const id = once && !loan ? idOf(once.token) : NO_CHARGE;
      answer = plain(corrected(call, found, states, now, decide(policy, states, now, cost, id)));
    }
    const changed = this.#changed(call, found, states, now, clock);
    // Only a check that was admitted and charged gets a row for its token, so that the limit bounds the number of these rows.
    if (once && answer.decision[STATUS] === ALLOWED && cost > 0) {
      const lots = policy.balance?.paid(policy.quotas, found.flatMap(({ before }) => before), answer.decision) ?? [];
      const paid = lots.length > 0 ? put(lots.length, 1) + lots.map(({ units, expires }) => longs(units, expires)).join("") : "";
      const value = (paid ? PAID : CHARGED) + longs(later(now, once.ttl)) + units + paid + writtenDecision(answer.decision, policy);
      changed.push([name!, rowOf(later(clock, Math.max(once.ttl, call.minTtl)), "", value)]);
    }
    this.#save(changed, clock);
    return answer;
  }

  /** Settles a charge to its actual cost, or to what it was. */
  #settle(call: Call, now: number, clock: number): LoanAnswer {
    const { action, policy, token, cost, rows } = call;
    const name = onceName(token, rows);
    const first = this.#first(name, policy, now);
    if (!first) throw ["unknown_charge", "no charge is remembered under this policy, key and token; settle within the token's time to live"];
    if (first.isSettled) {
      const standing = peek(policy, this.#find(call, now).states, now, 0);
      standing[REPLAY] = 1;
      return plain(standing);
    }
    const charge = { id: idOf(token), at: first.decision[AT]!, cost: costOf(first.units), paid: first.paid };
    const value = valueOf(first.row);
    const row = rowOf(first.row.expires, "", SETTLED + value.slice(SETTLED.length, LOTS_AT) + value.slice(first.decisionAt));
    return this.#change(call, now, clock, (states) => settle(policy, states, charge, now, action === RELEASE ? charge.cost : cost), [name, row]);
  }

  /** Changes the states of a call's rows, and writes another row with them. */
  #change(call: Call, now: number, clock: number, change: (states: State[]) => void, ...others: readonly Named[]): LoanAnswer {
    const { found, states } = this.#find(call, now);
    change(states);
    this.#save([...this.#changed(call, found, states, now, clock), ...others], clock);
    return plain(peek(call.policy, states, now, 0));
  }

  /** Grants units, once for each token. */
  #grant(call: Call, now: number, clock: number): LoanAnswer {
    const { policy, token, units, cost, extra, expires, minTtl, rows } = call;
    // The other quotas may change before the grant is repeated.
    const name = onceName(token, [rows[balanceOf(policy).row(policy)]!], "grant");
    const row = this.#row(name);
    const reader = row && new Reader(valueOf(row), 0, (what) => ["corrupt", `durable object: the row of a grant: ${what}`]);
    if (reader && reader.digits(1) !== GRANTED) throw reader.error("it is not one");
    const [until, granted] = reader ? [reader.instant(), reader.digits(8)] : [0, ""];
    reader?.end();
    if (until > now) {
      const standing = peek(policy, this.#find(call, now).states, now, 0);
      if (granted !== units) throw REUSED;
      standing[REPLAY] = 1;
      return plain(standing);
    }
    const remembered = rowOf(later(clock, Math.max(extra, minTtl)), "", GRANTED + longs(later(now, extra)) + units);
    return this.#change(call, now, clock, (states) => grant(policy, states, now, cost, expires), [name, remembered]);
  }

  /** Resets the counts, even of a row that cannot be read, but for a balance: it is money. */
  #delete({ policy, parts, rows }: Call, now: number, clock: number): LoanAnswer {
    rows.forEach((name, nth) => {
      const part = parts[nth]!;
      if (policy.balance && part.quotas[0]!.rule === policy.balance) return;
      const row = this.#lent(part, name);
      if (row) return this.#save([[name, row]], clock);
      this.#rows.remove(name);
      this.#cache.delete(name);
    });
    return plain(peek(policy, unused(policy), now, 0));
  }

  /** What a reset keeps of a row: units that are lent may still be spent, so they stay charged. */
  #lent(policy: Policy, name: string): Row | undefined {
    try {
      const row = this.#row(name);
      const leased = row && leasedOf(row);
      if (!leased) return undefined;
      const states = statesOf(policy.quotas, valueOf(row));
      // A reset carries no time, so leases that had not ended by the last call count as lent.
      verify(policy, states, MAX_INSTANT);
      const lender = lenderOf(leased);
      return lender.reset(policy, states) ? rowOf(row.expires, longs(...lender.numbers), written(policy.quotas, states)) : undefined;
    } catch (thrown) {
      if (!Array.isArray(thrown) || thrown[0] !== "corrupt") throw thrown;
      return undefined;
    }
  }

  /** The rows of a call, and a copy of all their states. */
  #find({ parts, rows }: Call, now: number): { found: Found[]; states: State[] } {
    const found: Found[] = [];
    let all: State[] = [];
    for (let nth = 0; nth < rows.length; nth++) {
      const part = parts[nth]!;
      const own = this.#stored(nth, part, rows[nth]!, now);
      const states = copied(part.quotas, own.before);
      found.push(own);
      all = nth === 0 ? states : [...all, ...states];
    }
    return { found, states: all };
  }

  /** The row at a place of a call. Throws if its policy cannot have written it by now. */
  #stored(nth: number, part: Policy, name: string, now: number): Found {
    const row = this.#row(name);
    if (!row) return { expires: undefined, before: unused(part), lender: undefined };
    const { expires } = row;
    let read = this.#read[nth];
    if (read?.row !== row || read.part !== part) read = this.#read[nth] = { row, part, states: statesOf(part.quotas, valueOf(row)) };
    verify(part, read.states, now);
    const leased = leasedOf(row);
    if (leased === "") return { expires, before: read.states, lender: undefined };
    const [before, lender] = [copied(part.quotas, read.states), lenderOf(leased)];
    lender.settle(part, before, now);
    return { expires, before, lender };
  }

  /** The rows to write: those that say something else than the stored ones. */
  #changed({ policy, parts, rows, minTtl }: Call, found: readonly Found[], states: readonly State[], now: number, clock: number): Named[] {
    const changed: Named[] = [];
    for (let nth = 0; nth < rows.length; nth++) {
      const part = parts[nth]!;
      const { expires, before, lender } = found[nth]!;
      const { first, end } = policy.rows[nth]!;
      if (!lender?.changed && areSame(part.quotas, before, states, first)) continue;
      const unusedAfter = expiresAfter(policy, states, now, first, end);
      if (expires === undefined && unusedAfter === 0) continue;
      // Lent units may be spent until the last loan ends, and drain from then on.
      const ttl = unusedAfter + (lender ? since(lender.lastEnd, now) : 0);
      const leased = lender ? longs(...lender.numbers) : "";
      const row = rowOf(later(clock, Math.max(ttl, 1, minTtl)), leased, written(part.quotas, states, first));
      const own = states.slice(first, end);
      if (areReadable(own)) this.#read[nth] = { row, part, states: own };
      changed.push([rows[nth]!, row]);
    }
    return changed;
  }

  /** The first answer in the row of a token, if it still holds. */
  #first(name: string, { quotas }: Policy, now: number): First | undefined {
    const row = this.#row(name);
    if (!row) return undefined;
    const reader = new Reader(valueOf(row), 0, (what) => ["corrupt", `durable object: the row of a token: ${what}`]);
    const kind = reader.digits(1);
    if (kind !== CHARGED && kind !== SETTLED && kind !== PAID) throw reader.error("it is not one");
    const [until, units] = [reader.instant(), reader.digits(8)];
    const paid = kind === PAID ? Array.from({ length: reader.byte() }, () => ({ units: reader.long(), expires: reader.instant() })) : undefined;
    const first = { row, units, isSettled: kind === SETTLED, paid, decisionAt: reader.at, decision: decisionOf(reader, quotas.length) };
    return until > now ? first : undefined;
  }

  /** A row from memory, or from storage into memory. */
  #row(name: string): Row | undefined {
    let row = this.#cache.get(name);
    if (row) return row;
    row = this.#rows.load(name);
    if (row) this.#cache.set(name, row);
    return row;
  }

  #save(rows: readonly Named[], clock: number): void {
    if (rows.length === 0) return;
    this.#rows.save(rows);
    let expiry = MAX_INSTANT;
    for (const [name, row] of rows) {
      this.#cache.set(name, row);
      expiry = Math.min(expiry, row.expires);
    }
    if (this.#sweeping) {
      // It sets the alarm when it is done.
      this.#sweeping.next = earlier(this.#sweeping.next, expiry);
      return;
    }
    const wake = Math.max(expiry, later(clock, this.#pause));
    // A pending alarm stays, unless these rows would wait for it more than twice as long as necessary.
    if (this.#alarm !== undefined && Math.floor(since(this.#alarm, clock) / 2) <= since(wake, clock)) return;
    try {
      this.#wakeAt(wake);
    } catch {
      // The request is charged already. The next write tries again.
    }
  }

  #wakeAt(at: number): void {
    this.#rows.setAlarm(at);
    this.#alarm = at;
  }
}

/** The answer without a loan. */
function plain(decision: Decision): LoanAnswer {
  return { decision, granted: undefined, deniesFor: 0 };
}

/** A decision, with the wait that loans make longer. Only one row is ever lent. */
function corrected({ policy, cost }: Call, found: readonly Found[], states: readonly State[], now: number, decision: Decision): Decision {
  const { lender } = found[0]!;
  return lender && found.length === 1 ? lender.corrected(policy, states, now, cost, decision) : decision;
}

/** The name of the row with the first answer to a check of these rows, or with a grant. No other row's name begins like this. */
function onceName(token: string, rows: readonly string[], kind = "once"): string {
  // Rows of one group differ in their ends only.
  return `${kind}:${rows.length === 1 ? token : hashOf([token, ...rows].join("\n"))}:${rows[0]}`;
}

function earlier(one: number | undefined, other: number | undefined): number | undefined {
  return one === undefined || other === undefined ? (one ?? other) : Math.min(one, other);
}

/** An answer, or the error that was thrown. */
function orError(answer: () => string): string {
  try {
    return answer();
  } catch (thrown) {
    const { kind, message } = TidegateError.from(thrown);
    return writtenError(kind, message);
  }
}
