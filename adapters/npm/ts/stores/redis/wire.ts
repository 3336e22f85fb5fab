import type { Rule } from "../../core/algorithms/algorithm.js";
import { MAX_INSTANT, MAX_SKEW, MAX_UNITS } from "../../core/arithmetic.js";
import { decide, type Decision, peek, unused, verify, withoutCounts } from "../../core/decide.js";
import { digest } from "../../core/key.js";
import type { Lender, LoanAnswer, LoanQuestion } from "../../core/lending/lender.js";
import type { Policy } from "../../core/policy.js";
import { ALLOWED, DENIED, FROM_STORE, NEVER_ADMISSIBLE, REPLAY, STATUS, UNKNOWN, WAIT } from "../../decision_numbers.js";
import { chargeIdOf, type StoreCore } from "../../limiter_core.js";
import { BLOCK, CHECK, GRANT, PEEK, type Question, REFUND, RESET, SETTLE } from "../../question.js";
import { parse } from "./state.js";

// What the scripts are asked, and what their answers mean: see `call.rs` of `tidegate-redis`.

/** The scripts: the general one, that for plain checks, that for states with loans, and that for balances, which a balance has. */
export const GENERAL = 0;
export const PLAIN = 1;
export const LENDING = 2;
export const BALANCE = 3;
export type Script = 0 | 1 | 2 | 3;

/** What Lua's `..` prints as a whole number, with all its digits. */
const PRINTED = 100_000_000_000_000;

/** The general script's names for the questions. */
const MODES = { [CHECK]: "c", [PEEK]: "p", [SETTLE]: "s", [REFUND]: "r", [BLOCK]: "b", [RESET]: "x", [GRANT]: "g" } as const;

/** The options that the scripts get. */
export interface WireOptions {
  /** Whether the server's clock decides. */
  isTimeless: boolean;
  minTtlMs: number;
  /** Undefined for who does not borrow, and tells no counts of states with loans. */
  loans?: Loans | undefined;
}

/** What the counts of states with loans need: `loans.ts`, which a `RateLimiter` does not load. */
export interface Loans {
  /** Adds the script `LENDING` to the others. */
  addScript(scripts: string[]): void;
  canLend(policy: Policy): boolean;
  /** What is lent of a state, by its numbers. */
  lender(numbers: readonly number[]): Lender;
  /** Reads the answer of `LENDING` to a borrower's question. Throws for a loan that is not safe. */
  lent(question: Question, loan: LoanQuestion, options: WireOptions, text: string): LoanAnswer;
}

/** The script to ask first. If it has no answer, `LENDING` has. `lends` if states probably have loans. */
export function scriptFor(question: Question, { isTimeless, loans }: WireOptions, lends: boolean): Script {
  const { policy } = question;
  if (policy.balance) return BALANCE;
  if (question.kind === RESET || (lends && onceToken(question) === undefined && loans!.canLend(policy))) return LENDING;
  return isPlain(policy, question, isTimeless) ? PLAIN : GENERAL;
}

/** Whether this is a check by windows and buckets, all of one row or each of its own, with numbers that allow for plain.lua's arithmetic. */
function isPlain({ quotas, rows, chargeDenied }: Policy, { kind, token, cost, now }: Question, isTimeless: boolean): boolean {
  const isFlat = rows.length === 1 || rows.length === quotas.length;
  return kind === CHECK && token === undefined && isFlat && !chargeDenied && (isTimeless || now < PRINTED) && cost >= 1 && quotas.every(({ rule }) => isSmall(rule, cost));
}

function isSmall({ code, amount, unit }: Rule, cost: number): boolean {
  const product = amount * unit;
  const isWindow = amount < 2 ** 31 && unit < (PRINTED - MAX_SKEW) / 2;
  return cost <= amount && (code === "fw" ? isWindow : code === "sw" ? isWindow && product <= MAX_UNITS : (code === "tb" || code === "lb") && product < PRINTED - MAX_SKEW);
}

/** What follows a script in a command: the number of keys, the keys, and the arguments. */
export function words(core: StoreCore, question: Question, script: Script, options: WireOptions, loan?: LoanQuestion): string[] {
  const { policy } = question;
  const token = onceToken(question);
  // What all begin with is in braces, which puts them into one slot of a cluster.
  const rows = core.storage(question).rows.map((row) => row.replace(/^[^|]*/, "{$&}"));
  if (token !== undefined) rows.push(onceKey(question.kind === GRANT ? [rows[policy.balance!.row(policy)]!] : rows, token));
  const rest = script === PLAIN ? plain(question, options) : general(question, options);
  if (script === LENDING) rest.unshift(loan ? loanWord(loan) : "");
  policy.balance?.parts.adjust(question, rows, rest);
  return [String(rows.length), ...rows, ...rest];
}

function plain({ policy, cost, now }: Question, { isTimeless, minTtlMs }: WireOptions): string[] {
  const needed = minTtlMs > 1 ? 3 : !isTimeless ? 2 : Number(cost > 1);
  const further = [cost, isTimeless ? "server" : now, ttl(minTtlMs)].slice(0, needed);
  return [...quotaWords(policy), ...further].map(String);
}

function quotaWords({ quotas }: Policy): (string | number)[] {
  return quotas.flatMap(({ rule: { code, amount, unit, last } }) => [code, amount, unit, last]);
}

function general(question: Question, { isTimeless, minTtlMs }: WireOptions): string[] {
  const { kind, cost, now, extra, token } = question;
  const { dimensions, rows, chargeDenied, holdsSlots, longestSlot } = question.policy;
  // A digit for the quotas of each row, or 0 for one of the dimension before.
  const counts = rows.length > 1 ? rows.map(({ first, end }) => (dimensions.some((one) => one.first === first) ? end - first : 0)).join("") : "";
  const isReset = kind === RESET;
  const amount = kind === BLOCK ? extra : isReset ? 0 : kind === SETTLE && cost < 0 ? "-" : cost;
  const given = [
    ...[(kind === CHECK && chargeDenied ? "d" : MODES[kind]) + counts, isTimeless && !isReset ? "server" : isReset ? 0 : now],
    ...[amount, isReset ? 1 : ttl(minTtlMs)],
    ...quotaWords(question.policy),
  ];
  if (kind === REFUND) given.push(Math.min(extra, MAX_INSTANT));
  if (kind === CHECK && token !== undefined) given.push(ttl(Math.max(extra, longestSlot)));
  if (holdsSlots && kind !== GRANT && onceToken(question) !== undefined) given.push(chargeIdOf(question));
  return given.map(String);
}

/** The token under which the server remembers a charge. */
function onceToken({ kind, token }: Question): string | undefined {
  return kind === PEEK ? undefined : token;
}

/** The key of a token's first answer. Its length is bounded, whatever the token's length. It depends on the keys of all rows. */
function onceKey(rows: readonly string[], token: string): string {
  const tag = rows[0]!.replace(/}.*/, "}");
  const isAlone = rows.length === 1 && rows[0] === tag;
  return `${tag}:once:${digest(isAlone ? token : [...rows, token].join("\n")).slice(0, 32)}`;
}

/** A span as a TTL: at least 1 ms, and not too long. Redis would reject others after the charge was made. */
function ttl(ms: number): number {
  return Math.min(Math.max(ms, 1), MAX_INSTANT);
}

function loanWord({ wanted, within, owed, lifetime, back }: LoanQuestion): string {
  return [wanted, within, owed, lifetime, ...(back ? [back.loan, back.unspent, back.kept] : [])].join(" ");
}

/** Reads the answer of a script. Undefined if the state is one for another. */
export function answer(question: Question, script: Script, { isTimeless, loans: known }: WireOptions, text: string): Decision | undefined {
  if (text === "" && script !== LENDING) return undefined;
  const { policy } = question;
  const tells = isTimeless || onceToken(question) !== undefined;
  const { isAdmitted, isReplay, now, cost, state } = told(question, tells, text);
  const { states, loans } = state === "" ? { states: unused(policy), loans: [] } : parse(policy, state);
  if (state !== "") verify(policy, states, now);
  if (loans.length > LENDERS_OWN && !known) return lentElsewhere(policy, isAdmitted, now, cost);
  const lender = loans.length > 0 ? known?.lender(loans) : undefined;
  lender?.settle(policy, states, now);
  const corrected = (decision: Decision) => lender?.corrected(policy, states, now, cost, decision) ?? decision;
  if (question.kind !== CHECK) {
    const standing = corrected(peek(policy, states, now, question.kind === PEEK ? cost : 0));
    standing[REPLAY] = Number(isReplay);
    return standing;
  }
  const decision = corrected(decide(policy, states, now, cost, chargeIdOf(question)));
  decision[REPLAY] = Number(isReplay);
  if (isAdmitted !== (decision[STATUS] === ALLOWED)) {
    if (!isReplay) throw disagreement(isAdmitted);
    // The limits have changed since the token's first answer. It holds, but its waits are unknown.
    [decision[STATUS], decision[WAIT]] = [isAdmitted ? ALLOWED : DENIED, UNKNOWN];
  }
  policy.balance?.agrees(decision, text);
  return decision;
}

/** The numbers of a lender without loans. */
const LENDERS_OWN = 2;

/** The server's decision on a state with loans, of which this limiter reads no counts. */
function lentElsewhere(policy: Policy, isAdmitted: boolean, now: number, cost: number): Decision {
  const fresh = decide(policy, unused(policy), now, cost);
  return fresh[STATUS] === NEVER_ADMISSIBLE ? fresh : withoutCounts(policy, isAdmitted ? ALLOWED : DENIED, 0, UNKNOWN, now, FROM_STORE);
}

/** What a script has answered. */
interface ScriptAnswer {
  isAdmitted: boolean;
  isReplay: boolean;
  now: number;
  cost: number;
  state: string;
}

/** Reads what every script answers. `tells` whether the time and the cost are the server's. */
export function told({ kind, cost, now }: Question, tells: boolean, text: string): ScriptAnswer {
  const { 1: verdict, 2: time, 3: units, 4: rest }: Record<number, string | undefined> = /^([adr])(?:@(\d+) (\d+)(?:\+\d+)? )?([^@]*)$/.exec(text) ?? [];
  if (!verdict || (time === undefined && tells)) throw noAnswer(text);
  const own = kind === SETTLE || kind === BLOCK ? 0 : cost;
  const [instant, charged] = time === undefined ? [now, own] : [Math.min(Number(time), MAX_INSTANT), Number(units)];
  return { isAdmitted: verdict !== "d", isReplay: verdict === "r", now: instant, cost: charged, state: rest! };
}

export function disagreement(isAdmitted: boolean): unknown {
  const which = `admitted by the store: ${isAdmitted}, here: ${!isAdmitted}`;
  return ["corrupt", `the store and this package disagree on a decision (${which}); do all clients of this store run the same version of Tidegate?`];
}

export function noAnswer(text: string): unknown {
  return ["corrupt", `${JSON.stringify(text.slice(0, 60))} is not an answer of Tidegate's script; is this a Redis server?`];
}
