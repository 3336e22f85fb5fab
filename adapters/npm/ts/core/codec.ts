import { ALLOWED, AT, BINDING, DELAY, DENIED, EACH, FROM_STORE, PAID, QUOTAS, REPLAY, STATUS, UNKNOWN, WAIT } from "../decision_numbers.js";
import type { LogState, PenaltyState, Rule, SlotsState, State } from "./algorithms/algorithm.js";
import { Penalty } from "./algorithms/penalty.js";
import { MAX_INSTANT } from "./arithmetic.js";
import type { Decision } from "./decide.js";
import { Lender } from "./lending/lender.js";
import type { Policy, Quota } from "./policy.js";

// States, loans and decisions as bytes, which are hexadecimal digits here: see `codec.rs` of the core, of its lender and of its decisions.
// Integers are little-endian.

/** The version of stored states, in the high digit of their headers. */
const VERSION = 16;

/** The most entries of a log, and the most slots. */
const ENTRIES_MAX = 1_000;

/** The most lots of a balance. */
const LOTS_MAX = 64;

/** The bits of a decision's first byte. */
const STATUS_BITS = 3;
const IS_REPLAY = 4;
const WAITS = 8;
const IS_PAID = 16;
const FLAGS_END = 32;

/** How many bytes an integer takes at most. */
const SMALL_MAX = 10;

/** The digits of each byte. */
const PAIRS = Array.from({ length: 256 }, (_, byte) => (256 + byte).toString(16).slice(1));

/** The number of each algorithm. */
const NUMBERS: Readonly<Record<string, number>> = { fw: 1, sw: 2, sl: 3, tb: 4, lb: 5, cc: 6, pn: 7, cw: 8, ba: 9 };

/** The numbers of a state while it is read or written, and those of another. */
const [numbers, others] = [new Float64Array(3), new Float64Array(3)];

/** An integer of so many bytes. */
export function put(value: number, bytes: number): string {
  let text = "";
  for (let nth = 0; nth < bytes; nth++) {
    // Bitwise operators take the low 32 bits of any integer.
    text += PAIRS[value & 255]!;
    value = Math.floor(value / 256);
  }
  return text;
}

/** Integers of eight bytes. */
export function longs(...values: readonly number[]): string {
  let text = "";
  for (const value of values) text += put(value, 8);
  return text;
}

/** The number that identifies an algorithm. */
export function numberOf({ code }: Rule): number {
  return NUMBERS[code]!;
}

/** Reads bytes in order. They end with the first two digits that are none. */
export class Reader {
  readonly #text: string;
  readonly #wrong: (what: string) => unknown;
  /** The next digit. */
  at: number;

  /** `wrong` makes the error of bytes that nobody writes. */
  constructor(text: string, at: number, wrong: (what: string) => unknown) {
    this.#text = text;
    this.#wrong = wrong;
    this.at = at;
  }

  byte(): number {
    const byte = this.#peek();
    if (byte > 255) throw this.error("the bytes end too early");
    this.at += 2;
    return byte;
  }

  /** An integer of so many bytes. From 2^53 on, it may be rounded. */
  take(bytes: number): number {
    let [value, unit] = [0, 1];
    for (let nth = 0; nth < bytes; nth++) {
      value += this.byte() * unit;
      unit *= 256;
    }
    return value;
  }

  long(): number {
    return this.take(8);
  }

  instant(): number {
    const ms = this.long();
    if (ms > MAX_INSTANT) throw this.error("an instant is out of range");
    return ms;
  }

  /** The digits of so many bytes. */
  digits(bytes: number): string {
    const from = this.at;
    for (let nth = 0; nth < bytes; nth++) this.byte();
    return this.#text.slice(from, this.at);
  }

  /** An integer of seven bits a byte, low bits first. */
  small(): number {
    let [value, unit] = [0, 1];
    for (let nth = 0; nth < SMALL_MAX; nth++) {
      const byte = this.byte();
      value += (byte & 127) * unit;
      unit *= 128;
      if (byte < 128) return value;
    }
    throw this.error("an integer is too long");
  }

  isAtEnd(): boolean {
    return this.#peek() > 255;
  }

  end(): void {
    if (!this.isAtEnd()) throw this.error("there are bytes after the end");
  }

  error(what: string): unknown {
    return this.#wrong(what);
  }

  /** The next byte, or a larger number. */
  #peek(): number {
    return (digit(this.#text.charCodeAt(this.at)) << 4) | digit(this.#text.charCodeAt(this.at + 1));
  }
}

/** The value of a digit, or 256 if it is none. */
function digit(code: number): number {
  if (code >= 48 && code <= 57) return code - 48;
  return code >= 97 && code <= 102 ? code - 87 : 256;
}

/** Whether the states of quotas say the same. The first of the others is at a place of these. */
export function areSame(quotas: readonly Quota[], before: readonly State[], after: readonly State[], first: number): boolean {
  return quotas.every(({ rule }, nth) => isSame(rule, before[nth]!, after[first + nth]!));
}

function isSame(rule: Rule, before: State, after: State): boolean {
  if (rule.numbersOf) return String(rule.numbersOf(before)) === String(rule.numbersOf(after));
  if (rule.size > 0) {
    rule.save(before, numbers, 0);
    rule.save(after, others, 0);
    for (let place = 0; place < rule.size; place++) if (numbers[place] !== others[place]) return false;
    return true;
  }
  const [one, other] = [entries(before)!, entries(after)!];
  if (one.length !== other.length) return false;
  return one.every((entry, nth) => {
    const { at, units, id, cost } = other[nth]!;
    return entry.at === at && entry.units === units && entry.id === id && entry.cost === cost;
  });
}

/** What a log or a concurrency limit remembers. Other states have no entries. */
function entries(state: State): readonly Partial<LogState["entries"][0] & SlotsState["slots"][0]>[] | undefined {
  return "entries" in state ? state.entries : (state as Partial<SlotsState>).slots;
}

/** Whether `statesOf` reads what `written` writes of states. A log that is overdrawn while it is full has an entry too many. */
export function areReadable(states: readonly State[]): boolean {
  return states.every((state) => (entries(state)?.length ?? 0) <= ENTRIES_MAX);
}

/** Writes the states of quotas. The first one is at a place of these. */
export function written(quotas: readonly Quota[], states: readonly State[], first = 0): string {
  let text = "";
  for (let nth = 0; nth < quotas.length; nth++) {
    const { rule } = quotas[nth]!;
    const state = states[first + nth]!;
    text += PAIRS[VERSION | numberOf(rule)]!;
    if (rule.numbersOf) {
      const [first = 0, ...pairs] = rule.numbersOf(state);
      text += longs(first) + put(pairs.length / 2, 4) + longs(...pairs);
    } else if (rule instanceof Penalty) {
      const { strikes, until, length } = state as PenaltyState;
      text += put(strikes, 1) + put(length, 7) + put(until, 8);
    } else if (rule.size > 0) {
      rule.save(state, numbers, 0);
      for (let place = 0; place < rule.size; place++) text += put(numbers[place]!, 8);
    } else if (rule.code === "sl") {
      const { entries } = state as LogState;
      text += put(entries.length, 4);
      for (const { at, units } of entries) text += put(at, 8) + put(units, 4);
    } else {
      const { slots } = state as SlotsState;
      text += put(slots.length, 4);
      for (const { id, at, cost } of slots) text += reversed(id) + put(at, 8) + put(cost, 8);
    }
  }
  return text;
}

/** Reads what `written` wrote. Whether a policy can have written it, `verify` of the core tells. */
export function statesOf(quotas: readonly Quota[], text: string): State[] {
  const reader = new Reader(text, 0, (what) => ["corrupt", `stored state: ${what}; delete the key, or find what else writes to it`]);
  const found = quotas.map(({ rule }) => {
    if (reader.byte() !== (VERSION | numberOf(rule))) throw reader.error(`no state of a ${rule.name}, version 1`);
    const state = rule.unused();
    if (rule instanceof Penalty) {
      const [strikes, length, until] = [reader.byte(), reader.take(7), reader.long()];
      return { strikes, until, length };
    }
    if (rule.size > 0) {
      for (let place = 0; place < rule.size; place++) numbers[place] = reader.long();
      rule.load(state, numbers, 0);
      return state;
    }
    const first = rule.stateOf ? [reader.long()] : [];
    const count = reader.take(4);
    if (rule.stateOf && count <= LOTS_MAX) return rule.stateOf([...first, ...Array.from({ length: 2 * count }, (_, nth) => (nth % 2 ? reader.instant() : reader.long()))]);
    if (rule.stateOf || count > ENTRIES_MAX) throw reader.error(`${count} entries of a ${rule.name}, ${ENTRIES_MAX} at most`);
    for (let nth = 0; nth < count; nth++) {
      if ("entries" in state) state.entries.push({ at: reader.long(), units: reader.take(4) });
      else (state as SlotsState).slots.push({ id: reversed(reader.digits(8)), at: reader.long(), cost: reader.long() });
    }
    return state;
  });
  reader.end();
  return found;
}

/** The id of a slot is stored with its last byte first. */
function reversed(id: string): string {
  return id.match(/../g)!.reverse().join("");
}

/** Reads what is lent. It is stored as the `numbers` of a lender. */
export function lenderOf(text: string): Lender {
  const reader = new Reader(text, 0, (what) => ["corrupt", `stored loans: ${what}; delete the key`]);
  const found: number[] = [];
  while (!reader.isAtEnd()) found.push(reader.long());
  return Lender.fromNumbers(found);
}

/** Writes a decision, without its origin. */
export function writtenDecision(decision: Decision, { quotas, balance }: Policy): string {
  const [wait, paid] = [decision[WAIT]!, decision[PAID]!];
  const flags = decision[STATUS]! | (decision[REPLAY] ? IS_REPLAY : 0) | (wait === UNKNOWN ? 0 : WAITS) | (paid > 0 ? IS_PAID : 0);
  let text = PAIRS[flags]! + small(decision[BINDING]!) + small(decision[AT]!) + small(decision[DELAY]!);
  if (wait !== UNKNOWN) text += small(wait);
  // What is unknown is 0.
  for (let at = QUOTAS; at < decision.length; at += EACH) text += small(decision[at]!) + small(decision[at + 1]! + 1) + small(decision[at + 2]! + 1);
  return paid > 0 ? text + small(quotas.findIndex(({ rule }) => rule === balance)) + small(paid) : text;
}

/** Reads what `writtenDecision` wrote of a decision on so many quotas. */
export function decisionOf(reader: Reader, quotas: number): Decision {
  const flags = reader.byte();
  const [status, binding, at, delay] = [flags & STATUS_BITS, reader.small(), Math.min(reader.small(), MAX_INSTANT), reader.small()];
  const wait = flags & WAITS ? reader.small() : UNKNOWN;
  // Only a denied request has a wait, and only an allowed one a delay.
  const found: Decision = [status, binding, status === DENIED ? wait : UNKNOWN, status === ALLOWED ? delay : 0, at, FROM_STORE, flags & IS_REPLAY ? 1 : 0, 0];
  for (let nth = 0; nth < quotas; nth++) {
    const [limit, remaining, reset] = [reader.small(), reader.small() - 1, reader.small() - 1];
    found.push(limit, remaining, remaining === UNKNOWN ? UNKNOWN : reset);
  }
  let isRight = status !== STATUS_BITS && flags < FLAGS_END && binding < quotas;
  if (flags & IS_PAID) {
    const payer = reader.small();
    isRight &&= payer < quotas && status === ALLOWED && (found[PAID] = reader.small()) > 0;
  }
  if (!isRight) throw reader.error("the bytes are not a decision by this policy");
  reader.end();
  return found;
}

/** An integer of seven bits a byte. */
function small(value: number): string {
  let text = "";
  while (value > 127) {
    text += PAIRS[(value & 127) | 128]!;
    value = Math.floor(value / 128);
  }
  return text + PAIRS[value]!;
}

/** Bytes as digits. */
export function hexOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => PAIRS[byte]!).join("");
}

/** The bytes of digits. */
export function bytesOf(digits: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: digits.length / 2 }, (_, nth) => parseInt(digits.slice(2 * nth, 2 * nth + 2), 16));
}
