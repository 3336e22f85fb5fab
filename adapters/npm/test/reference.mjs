// The core of Rust, as WebAssembly that build.sh makes for the tests: what the TypeScript is held to.

import { readFileSync } from "node:fs";
import { GIVEN_WINDOWS } from "../modules/core/algorithms/calendar_window.js";
import { MAX_INSTANT } from "../modules/core/arithmetic.js";
import { ask as question, GRANT } from "../modules/question.js";
import { called } from "../modules/store.js";

/** The most numbers of a decision: 8, and 3 for each of 8 quotas. One more number follows. */
const NUMBERS_MAX = 32;

/** The seed of a test's choices: a fresh one, or that of the environment. It is printed, so that a failure can be repeated. */
export function seeded() {
  const seed = Number(process.env.TIDEGATE_SEED ?? Math.floor(Math.random() * 2 ** 31));
  console.log(`TIDEGATE_SEED=${seed}`);
  return seed;
}

/** A question for a store, which knows its policy. */
export const ask = (kind, now) => question(kind, undefined, now);

const calls = new WeakMap();

/** The one call of a question. */
export function callOf(question) {
  if (!calls.has(question)) calls.set(question, called(question));
  return calls.get(question);
}

/** Starts a module of the reference. */
export async function started(store) {
  const folder = new URL(`../reference/${store}/`, import.meta.url);
  const glue = await import(new URL("glue.js", folder));
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(new URL("tidegate.wasm", folder))), { "./tidegate_bg.js": glue });
  glue.start(exports);
  return glue;
}

/** Starts the gate of the reference. Its classes are `RulesGate` and `RulesCaller`: see `src/rules.rs` and `src/rules/call.rs`. */
export const startedGate = () => started("rules-toml");

/** A limiter of the reference. `own` are the store's options, in the order in which it reads them. */
export class Reference {
  constructor(engine, options, own) {
    this.engine = engine;
    const { platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, groupAt, placeByKey, quotas } = options;
    const given = [
      ...[platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, groupAt < 0 ? undefined : groupAt, placeByKey, quotas.length],
      ...quotas.flatMap(({ name, by, algorithm, place, amount, span, refill }) => [name, by, algorithm, place, amount, span, refill]),
      ...own,
    ];
    for (const one of given) this.push(one === undefined ? one : String(typeof one === "boolean" ? Number(one) : one));
    this.limit = engine.Limit.make();
    if (!this.limit) throw this.error(-1 - this.extra);
    this.count = 8 + 3 * quotas.length;
  }

  /** The numbers of the last decision. */
  get numbers() {
    return new Float64Array(this.engine.memory().buffer, this.engine.numbersAt(), NUMBERS_MAX + 1);
  }

  /** The one more number. */
  get extra() {
    return this.numbers[NUMBERS_MAX];
  }

  /** Writes bytes or a text for the next call. Returns the number of bytes. */
  write(given) {
    const bytes = Buffer.from(given);
    const at = this.engine.bytesAt(bytes.length);
    new Uint8Array(this.engine.memory().buffer).set(bytes, at);
    return bytes.length;
  }

  /** Adds a text, or the lack of one, to those that the next call takes. */
  push(text) {
    this.engine.push(text === undefined ? -1 : this.write(text));
  }

  /** The bytes and the text that a call has left, by what it returned. */
  bytes(returned) {
    return Uint8Array.from(new Uint8Array(this.engine.memory().buffer, this.engine.leftAt(), this.took(returned)));
  }

  text(returned) {
    return Buffer.from(this.bytes(returned)).toString();
  }

  /** Throws the error that a call has left, if what it returned is negative. */
  took(returned) {
    if (returned >= 0) return returned;
    throw this.error(returned);
  }

  /** The kind and the message of an error. */
  error(returned) {
    const text = this.text(-1 - returned);
    const end = text.indexOf("\n");
    return [text.slice(0, end), text.slice(end + 1)];
  }

  get capabilities() {
    return JSON.parse(this.text(this.limit.capabilities()));
  }

  /** 0 the names of the policy's dimensions, 1 those of its quotas, 2 the header fields of the client's address. */
  describe(which) {
    return this.text(this.limit.text(which));
  }

  /** Passes the keys and the token of a question, that of a grant after the instant at which its units expire. Returns the length of a key that is alone. */
  pass({ kind, key, others, token, expires }) {
    if (token === undefined && others.length === 0) return this.write(key);
    if (token !== undefined) this.push(kind === GRANT ? `${expires} ${token}` : token);
    for (const other of others) this.push(other);
    this.push(key);
    return 0;
  }

  get decision() {
    return Array.from(this.numbers.subarray(0, this.count));
  }

  key(first, second, peer, { subject, apiKey }) {
    for (const text of [first, second, peer, subject, apiKey]) this.push(text);
    return this.text(this.limit.key());
  }

  /** What a client is sent. */
  sent(decision) {
    this.numbers.set(decision);
    return read(this.text(this.limit.told()));
  }

  undecided(kind, failsOpen) {
    return read(this.text(this.engine.undecided(this.write(kind), failsOpen)));
  }
}

function read(text) {
  const [head, body = ""] = text.split("\n\n", 2);
  const [status, ...fields] = head.split("\n");
  const headers = Object.fromEntries(fields.filter(Boolean).map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1)]));
  return { status: Number(status), headers, body };
}

/** Numbers that look random, and come again with the same seed (mulberry32). */
export class Chance {
  constructor(seed) {
    this.seed = seed;
  }

  /** From 0 to below 1. */
  next() {
    this.seed = (this.seed + 0x6d2b79f5) | 0;
    let bits = Math.imul(this.seed ^ (this.seed >>> 15), 1 | this.seed);
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits;
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from 0 to below `end`. */
  below(end) {
    return Math.floor(this.next() * end);
  }

  from(choices) {
    return choices[this.below(choices.length)];
  }

  /** Whether something happens that does so once in `times` times. */
  once(times) {
    return this.below(times) === 0;
  }
}

/** A quota of a calendar whose windows are given by numbers. The clock of a test begins near `now`. */
export function calendarQuota(below, now, amount) {
  const from = (...choices) => choices[below(choices.length)];
  const [first, next] = [from(1, 1, 7, 60, 1_440, 43_200, 2 ** 20 - 1), from(144_000, 525_600, 2 ** 20 - 1)];
  const start = Math.min(Math.floor(now / 60_000) + from(-first, -below(first + 1), below(2 * first), below(60)), Math.floor(2 ** 48 / 60_000));
  const carryOver = from(0, 1, amount, below(amount + 1));
  return { algorithm: 8, amount, span: Math.max(start, 0) * 2 ** 20 + first, refill: Math.min(carryOver, 2 ** 32 - 1) * 2 ** 20 + next, part: GIVEN_WINDOWS };
}

/** The latest instant whose windows are known: the core does not decide later. The package always decides by the window of an instant. */
export function latestKnown(quotas) {
  const ends = quotas.map(({ algorithm, span, refill }) => (algorithm === 8 ? (Math.floor(span / 2 ** 20) + (span % 2 ** 20) + (refill % 2 ** 20)) * 60_000 : Infinity));
  const end = Math.min(...ends);
  return end === Infinity ? end : Math.min(end, MAX_INSTANT) - 1;
}
