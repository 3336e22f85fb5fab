import type { StoreCore } from "../../limiter_core.js";
import { MAX_INSTANT } from "../../core/arithmetic.js";
import { digest } from "../../core/key.js";
import type { LoanAnswer, LoanQuestion } from "../../core/lending/lender.js";
import { type Part, Policy, type ReadyQuota } from "../../core/policy.js";
import { GIVEN_WINDOWS } from "../../core/algorithms/calendar_window.js";
import { anyRule } from "../../core/algorithms/make_algorithm.js";
import * as asked from "../../question.js";
import { decisionOf, longs, numberOf, put, Reader, writtenDecision } from "../../core/codec.js";
import { answered } from "./errors.js";

// Calls of an object and their answers: see `wire.rs` of `tidegate-cloudflare`.

/** The version of the protocol. */
const VERSION = 4;

/** That of a question with units that are owed: an object of an earlier release refuses it. */
const VERSION_OF_OWED = 5;

/** What several calls, and their answers, begin with: an object of an earlier release refuses them. */
const SEVERAL = put(6, 1);

/** The most calls that are sent as one. */
export const CALLS_MAX = 64;

/** The longest name of a row. */
const NAME_LEN_MAX = 1_024;

/** The flags of a call. */
const CHARGE_DENIED = 1;
const OBJECT_CLOCK = 2;
const TOKEN = 4;
const FLAGS_END = 8;

/** Those of an answer. */
const GRANTED = 1;
const DENIES = 2;
const ANSWER_FLAGS_END = 4;

/** What an object is asked to do. */
export const CHECK = 1;
export const PEEK = 2;
export const REFUND = 3;
export const DELETE = 4;
export const LEND = 5;
export const SETTLE = 6;
export const RELEASE = 7;
export const BLOCK = 8;
export const GRANT = 9;

/** The same by the kinds of questions. */
const ACTIONS = [CHECK, PEEK, SETTLE, REFUND, BLOCK, DELETE, GRANT] as const;

/** How many digits come before a call's policy, and how many a quota has. */
const [HEAD_AT, QUOTA_LEN] = [6, 2 * (1 + 3 * 8)] as const;

/** A token's hash, in digits. */
const TOKEN_BYTES = 16;
const TOKEN_LEN = 32;

/** The most policies that an object remembers. */
const POLICIES_MAX = 32;

/** How much of a text is shown. */
const SHOWN_MAX = 200;

/** The name of every policy that an object builds: it knows the numbers of a policy, and no names. */
const NAME = "wire";

/** A call of an object. */
export interface Call {
  readonly action: number;
  readonly policy: Policy;
  /** The policy of each row. */
  readonly parts: readonly Policy[];
  /** The names of the policy's rows. */
  readonly rows: readonly string[];
  readonly cost: number;
  /** The cost in digits: more than a double tells apart is the same only with the same digits. */
  readonly units: string;
  /** Undefined for the object's clock. */
  readonly now: number | undefined;
  readonly minTtl: number;
  /** The token of a check, and how long its first answer is kept. */
  readonly once: { readonly token: string; readonly ttl: number } | undefined;
  /** The token of a settlement or a grant. */
  readonly token: string;
  /** When a refund's cost was charged, how long to block, or how long a grant is remembered. */
  readonly extra: number;
  /** When what is granted expires. */
  readonly expires: number;
  readonly loan: LoanQuestion | undefined;
}

/** The options of calls. */
export interface WireOptions {
  /** Whether the object's clock decides. */
  isTimeless: boolean;
  minTtlMs: number;
}

const wrongCall = (what: string) => ["invalid", `durable object: ${what}`];
const wrongAnswer = (what: string) => ["corrupt", `durable object: ${what}`];

/** A token, as it is passed and stored. */
export function hashOf(token: string): string {
  return digest(token).slice(0, TOKEN_LEN);
}

/** The id of the charge with this token. */
export function idOf(token: string): string {
  return token.slice(0, 16);
}

/** The quotas of a policy, in digits. */
export function writtenQuotas({ quotas, dimensions }: Policy): string {
  let text = put(quotas.length, 1);
  dimensions.forEach(({ first, end }, place) => {
    for (const { rule } of quotas.slice(first, end)) text += put((place << 4) | numberOf(rule), 1) + longs(rule.amount, rule.unit, rule.last);
  });
  return text;
}

/** Writes what to ask about a question's rows. `quotas` are those of the policy, in digits. */
export function writtenCall(
  { policy }: Pick<StoreCore, "policy">,
  { kind, cost, now, token, extra, expires }: asked.Question,
  loan: LoanQuestion | undefined,
  quotas: string,
  rows: readonly string[],
  { isTimeless, minTtlMs }: WireOptions,
): string {
  const [isReset, isRelease] = [kind === asked.RESET, kind === asked.SETTLE && cost < 0];
  const once = kind === asked.CHECK && !loan ? token : undefined;
  const flags = (policy.chargeDenied ? CHARGE_DENIED : 0) | (isTimeless ? OBJECT_CLOCK : 0) | (once === undefined ? 0 : TOKEN);
  let text = put(loan?.owed ? VERSION_OF_OWED : VERSION, 1) + put(loan ? LEND : isRelease ? RELEASE : ACTIONS[kind], 1) + put(flags, 1) + quotas;
  for (const row of rows) {
    text += put(row.length, 2);
    for (let at = 0; at < row.length; at++) text += put(row.charCodeAt(at), 1);
  }
  text += longs(isRelease || isReset || kind === asked.BLOCK ? 0 : cost, isTimeless || isReset ? 0 : now, minTtlMs);
  if (once !== undefined) text += hashOf(once) + longs(Math.max(extra, policy.longestSlot));
  if (kind === asked.SETTLE || kind === asked.GRANT) text += hashOf(token ?? "");
  if (kind === asked.REFUND) text += longs(Math.min(extra, MAX_INSTANT));
  if (kind === asked.BLOCK) text += longs(extra);
  if (kind === asked.GRANT) text += longs(extra, expires);
  return loan ? text + writtenLoan(loan) : text;
}

function writtenLoan({ wanted, within, owed, lifetime, back }: LoanQuestion): string {
  return longs(wanted, within, wanted, lifetime) + (owed > 0 ? longs(owed) : "") + (back ? longs(back.loan, back.unspent, back.kept) : "");
}

/** A policy, and those of its rows. */
interface Built {
  readonly policy: Policy;
  readonly parts: readonly Policy[];
}

/** Reads calls. Most have the policy and the rows of the one before, or are the same, and need not be read anew. */
export class Calls {
  /** How a quota becomes a balance, if there are balances. */
  readonly #balances: Part | undefined;
  /** The last call, and its digits. */
  #last: Call | undefined;
  #text = "";
  /** The policies of recent calls, by their digits. */
  readonly #built = new Map<string, Built>();
  /** The policy and the rows of the last call, and their digits. */
  #policy: Built | undefined;
  #rows: readonly string[] = [];
  #head = "";

  constructor(balances?: Part) {
    this.#balances = balances;
  }

  /** Reads a call. Throws if `writtenCall` does not write it. */
  read(text: string): Call {
    if (this.#last && this.#text === text) return this.#last;
    const reader = new Reader(text, 0, wrongCall);
    const [version, action] = [reader.byte(), reader.byte()];
    // A deployment may take minutes to reach an object. Until then it is as good as down.
    if (version !== VERSION && version !== VERSION_OF_OWED) {
      throw ["unavailable", "durable object: the call has another version of the protocol; deploy the Worker and its objects together"];
    }
    const flags = reader.byte();
    if (flags >= FLAGS_END) throw reader.error("unknown flags");
    const { policy, parts } = this.#readHead(text, reader, (flags & CHARGE_DENIED) !== 0);
    const [units, now, minTtl] = [reader.digits(8), reader.instant(), reader.long()];
    const once = flags & TOKEN ? { token: reader.digits(TOKEN_BYTES), ttl: reader.long() } : undefined;
    if (action < CHECK || action > GRANT) throw reader.error("an unknown action");
    const token = action === SETTLE || action === RELEASE || action === GRANT ? reader.digits(TOKEN_BYTES) : "";
    const extra = action === REFUND ? reader.instant() : action === BLOCK || action === GRANT ? reader.long() : 0;
    const expires = action === GRANT ? reader.instant() : 0;
    const loan = action === LEND ? loanQuestion(reader, version) : undefined;
    if (version !== (loan?.owed ? VERSION_OF_OWED : VERSION)) throw reader.error("an action of another version");
    reader.end();
    this.#text = text;
    const called = flags & OBJECT_CLOCK ? undefined : now;
    const [rows, cost] = [this.#rows, costOf(units)];
    return (this.#last = { action, policy, parts, rows, cost, units, now: called, minTtl, once, token, extra, expires, loan });
  }

  /** Reads the policy and the names of the rows. */
  #readHead(text: string, reader: Reader, chargeDenied: boolean): Built {
    if (this.#policy?.policy.chargeDenied === chargeDenied && text.startsWith(this.#head, HEAD_AT)) {
      reader.at += this.#head.length;
      return this.#policy;
    }
    const built = this.#readPolicy(text, reader, chargeDenied);
    this.#rows = built.parts.map(() => name(reader));
    this.#head = text.slice(HEAD_AT, reader.at);
    return (this.#policy = built);
  }

  #readPolicy(text: string, reader: Reader, chargeDenied: boolean): Built {
    const count = reader.byte();
    const digits = text.slice(reader.at, reader.at + QUOTA_LEN * count);
    const key = `${chargeDenied}${digits}`;
    let built = this.#built.get(key);
    if (!built) {
      built = build(digits, count, chargeDenied, this.#balances);
      if (this.#built.size >= POLICIES_MAX) this.#built.clear();
      this.#built.set(key, built);
    }
    reader.at += digits.length;
    return built;
  }
}

/** Builds a policy of some quotas. Throws if `writtenQuotas` does not write them so. */
function build(digits: string, count: number, chargeDenied: boolean, balances: Part | undefined): Built {
  const quotas = Array.from({ length: count }, (_, nth) => quota(new Reader(digits, nth * QUOTA_LEN, wrongCall), balances));
  const policy = new Policy({ name: NAME, quotas, chargeDenied, groupBy: undefined, scopes: undefined, groupAt: -1, placeByKey: false }, anyRule);
  if (writtenQuotas(policy) !== put(count, 1) + digits) throw wrongCall("the quotas are not in a policy's order");
  const parts = policy.rows.map(({ first, end }) => ({ ...policy, quotas: policy.quotas.slice(first, end) }));
  return { policy, parts: parts.length === 1 ? [policy] : parts };
}

function quota(reader: Reader, balances: Part | undefined): ReadyQuota {
  const kind = reader.byte();
  const [amount, span, last] = [reader.long(), reader.long(), reader.long()];
  const number = kind & 15;
  if (number === 0 || number > 9) throw reader.error("an unknown algorithm");
  if (number === 9 && !balances) throw ["unsupported", `durable object: this class has no balances; export TidegateObject of "@tidegate/edge/credits/cloudflare"`];
  // A block has no base. Only 1 says that a concurrency limit returns the cost.
  const algorithm = number === 7 && span === 0 ? number : number - 1;
  return { algorithm, place: "", amount, span, refill: number === 6 || number === 9 ? Number(last === 1) : last, name: undefined, by: String(kind >> 4), part: number === 8 ? GIVEN_WINDOWS : number === 9 ? balances : undefined };
}

/** The name of a row. */
function name(reader: Reader): string {
  const length = reader.take(2);
  if (length === 0 || length > NAME_LEN_MAX) throw reader.error("a row's name is empty or too long");
  let text = "";
  for (let nth = 0; nth < length; nth++) text += String.fromCharCode(reader.byte());
  if (!/^[!-~]*$/.test(text)) throw reader.error("a row's name is not printable ASCII");
  return text;
}

/** Nothing has room for more units than a double tells apart. */
export function costOf(units: string): number {
  return Math.min(new Reader(units, 0, wrongCall).long(), Number.MAX_SAFE_INTEGER);
}

function loanQuestion(reader: Reader, version: number): LoanQuestion {
  const [spent, within, slice, lifetime] = [reader.long(), reader.long(), reader.long(), reader.long()];
  const owed = version === VERSION_OF_OWED ? reader.long() : 0;
  const back = reader.isAtEnd() ? undefined : { loan: reader.long(), unspent: reader.long(), kept: reader.long() };
  return { wanted: Math.min(spent, slice), within, owed, lifetime, back };
}

/** Writes several calls as one. */
export function together(calls: readonly string[]): string {
  return SEVERAL + calls.map(sized).join("");
}

/** The calls of one that `together` has written. Undefined for a call of another version. */
export function apart(text: string): string[] | undefined {
  if (!text.startsWith(SEVERAL)) return undefined;
  const [reader, calls]: [Reader, string[]] = [new Reader(text, SEVERAL.length, wrongCall), []];
  while (!reader.isAtEnd()) {
    if (calls.length === CALLS_MAX) throw reader.error("too many calls");
    calls.push(reader.digits(reader.take(4)));
  }
  return calls;
}

/** Writes the answers to several calls, or errors, as one. */
export function answersTogether(answers: readonly string[]): string {
  const written = (answer: string) => {
    const at = answer.indexOf(" ");
    if (at < 0) return put(200, 2) + sized(answer);
    const bytes = new TextEncoder().encode(answer.slice(at + 1));
    return put(Number(answer.slice(0, at)), 2) + sized(Array.from(bytes, (byte) => put(byte, 1)).join(""));
  };
  return SEVERAL + answers.map(written).join("");
}

/** The answers to so many calls. Undefined if the object takes no several ones. */
export function answersApart(text: unknown, count: number): string[] | undefined {
  if (typeof text !== "string" || !text.startsWith(SEVERAL)) return undefined;
  const reader = new Reader(text, SEVERAL.length, wrongAnswer);
  return Array.from({ length: count }, () => {
    const [status, digits] = [reader.take(2), reader.digits(reader.take(4))];
    if (status === 200) return digits;
    return `${status} ${new TextDecoder().decode(Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16)))}`;
  });
}

/** Digits after the number of their bytes. */
function sized(digits: string): string {
  return put(digits.length / 2, 4) + digits;
}

/** Writes an answer. */
export function writtenAnswer({ decision, granted, deniesFor }: LoanAnswer, policy: Policy): string {
  const flags = (granted ? GRANTED : 0) | (deniesFor > 0 ? DENIES : 0);
  const loan = granted ? longs(granted.number, granted.units, granted.lasts) : "";
  return put(VERSION, 1) + put(flags, 1) + loan + (deniesFor > 0 ? longs(deniesFor) : "") + writtenDecision(decision, policy);
}

/** The text of an error, by the status that it would have. */
export function writtenError(kind: string, message: string): string {
  const isCallers = kind === "invalid" || kind === "token_reused" || kind === "unknown_charge";
  return `${isCallers ? 400 : 500} ${kind}: ${message}`;
}

/** An error, with any status but 200. */
const ERROR = /^(?!\+?0*200 )[^ ]* (invalid|unavailable|timeout|contended|corrupt|refused|unsupported|token_reused|unknown_charge): ([^]*)$/;

/** Reads the answer to a call with this policy. Throws the object's error, or if it is no answer of an object. */
export function readAnswer(text: string, { quotas }: Policy): LoanAnswer {
  if (text.length % 2 > 0 || !/^[\da-f]{4,}$/.test(text)) throw thrownBy(text);
  const reader = new Reader(text, 0, wrongAnswer);
  const [version, flags] = [reader.byte(), reader.byte()];
  if (version !== VERSION || flags >= ANSWER_FLAGS_END) throw notAnAnswer(text);
  const granted = flags & GRANTED ? { number: reader.long(), units: reader.long(), lasts: reader.long() } : undefined;
  const deniesFor = flags & DENIES ? reader.long() : 0;
  return { decision: decisionOf(reader, quotas.length), granted, deniesFor };
}

/** The error of an object, or that a text is none. */
function thrownBy(text: string): unknown {
  const [, kind, message] = ERROR.exec(text) ?? [];
  return kind ? answered(kind, message!) : notAnAnswer(text);
}

function notAnAnswer(text: string): unknown {
  const shown = `${/^(?:\d+ |[\da-f]*$)/.test(text) ? "" : "500 "}${text}`.slice(0, SHOWN_MAX);
  const which = "check that the bound class is one of durable_object! in Rust or TidegateObject in JavaScript, and of this version";
  return wrongAnswer(`unexpected answer "${shown}"; ${which}`);
}
