// Durable Objects: the limiter and the object of the package are those of `tidegate-cloudflare`, byte for byte. Both are driven with the same
// questions over the same storage, and so is a third object, whose counter is sometimes the one and sometimes the other. A failure names the
// seed and the world; `TIDEGATE_SEED` in the environment plays it again, and `STEPS` is how long.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { register } from "node:module";
import { describe, test } from "node:test";
import { EXACT, lends } from "../modules/core/capabilities.js";
import { MAX_INSTANT, MAX_UNITS } from "../modules/core/arithmetic.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { Core } from "../modules/limiter_core.js";
import { TidegateError } from "../modules/error.js";
import { Policy } from "../modules/core/policy.js";
import { BALANCES } from "../modules/balances.js";
import { PAID, REPLAY } from "../modules/decision_numbers.js";
import { BLOCK, CHECK, GRANT, PEEK, REFUND, RESET, SETTLE } from "../modules/question.js";
import { Counter } from "../modules/stores/cloudflare/counter.js";
import { lost } from "../modules/stores/cloudflare/errors.js";
import { Rows } from "../modules/stores/cloudflare/rows.js";
import { StoreBorrowing } from "../modules/lending_store.js";
import { Stubs } from "../modules/stores/cloudflare/stubs.js";
import { answersApart, readAnswer, together, writtenCall, writtenQuotas } from "../modules/stores/cloudflare/wire.js";
import { ask, calendarQuota, callOf, latestKnown, seeded, started } from "./reference.mjs";

/** How the object of Rust reads and writes its rows. */
const ROWS = new URL("../../cloudflare/src/durable_objects/rows.js", import.meta.url);

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 5_000);

const START = 1_800_000_000_000;
const YEAR = 31_536_000_000;
const [FIXED, SLIDING, LOG, BUCKET, LEAKY, SLOTS, PENALTY, BY_HAND, CALENDAR, BALANCE] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

/** Numbers that look random, and are the same each time (mulberry32). */
class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0 to below 1, with 53 bits. */
  unit() {
    return (this.#bits() * 2 ** 21 + (this.#bits() >>> 11)) / 2 ** 53;
  }

  below(end) {
    return Math.floor(this.unit() * end);
  }

  chance(part) {
    return this.unit() < part;
  }

  pick(...choices) {
    return choices[this.below(choices.length)];
  }

  /** Of any size from 1 to `most`. */
  size(most) {
    const size = Math.floor(2 ** (this.unit() * Math.log2(most + 1))) + (this.chance(0.2) ? this.pick(-1, 1) : 0);
    return Math.min(Math.max(size, 1), most);
  }

  #bits() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return (bits ^ (bits >>> 14)) >>> 0;
  }
}

/**
 * Plays worlds until they have taken so many steps. `play` plays one, and returns how many. While something `isRare`, it goes on, ten times as long
 * at most.
 */
async function playWorlds(steps, play, isRare = () => false) {
  for (let world = 0, taken = 0; taken < steps || (taken < 10 * steps && isRare()); world++) {
    try {
      taken += await play(new Random(SEED * 1_000_003 + world));
    } catch (error) {
      throw new Error(`seed ${SEED}, world ${world}: ${error?.message ?? error}`, { cause: error });
    }
  }
}

/** What happens, or what is thrown. */
function tried(run) {
  try {
    return { value: run() };
  } catch (thrown) {
    if (!Array.isArray(thrown) && !(thrown instanceof TidegateError)) throw thrown;
    const { kind, message } = TidegateError.from(thrown);
    return { kind, message };
  }
}

// The WebAssembly, see `src/shared.rs`.

const glue = await started("object");
const { ObjectRows } = await import(`data:text/javascript,${encodeURIComponent(readFileSync(ROWS, "utf8"))}`);

function write(text) {
  const bytes = new TextEncoder().encode(text);
  const at = glue.bytesAt(bytes.length);
  new Uint8Array(glue.memory().buffer).set(bytes, at);
  return bytes.length;
}

const push = (text) => glue.push(text === undefined ? -1 : write(String(text)));

function left(returned) {
  const length = returned < 0 ? -1 - returned : returned;
  const at = glue.leftAt();
  const text = new TextDecoder().decode(new Uint8Array(glue.memory().buffer).slice(at, at + length));
  if (returned >= 0) return text;
  const end = text.indexOf("\n");
  throw [text.slice(0, end), text.slice(end + 1)];
}

const numbers = (quotas) => [...new Float64Array(glue.memory().buffer, glue.numbersAt(), 8 + 3 * quotas)];
const oneMore = () => new Float64Array(glue.memory().buffer, glue.numbersAt(), 33)[32];

/** The options of a policy of these quotas. */
const optionsWith = (...quotas) => ({
  ...{ platform: "cloudflare", ipv6Prefix: 64, trustTrueClientIp: false, problem: false, look: { asProblem: false, draft6: false, retryAfterMs: false }, failedOpenHeader: false },
  ...{ name: "api", chargeDenied: false, groupBy: undefined, scopes: undefined, groupAt: -1, placeByKey: false },
  quotas: quotas.map((quota) => ({ place: "", refill: 0, name: undefined, by: undefined, ...quota })),
});

/** Those of the store. */
const readyWith = (more) => ({
  ...{ isTimeless: true, shards: 0, minTtlMs: 0, slice: 0, lifetimeMs: 60_000, deadlineMs: 2_000, grace: 0 },
  keepAlive: () => {},
  ...more,
});

/** The limiter of Rust. */
class RustLimiter {
  #limit;
  #borrows;

  constructor(options, { isTimeless, shards, minTtlMs, slice, lifetimeMs, deadlineMs, grace }) {
    const { platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, groupAt, placeByKey, quotas } = options;
    const group = groupAt < 0 ? undefined : groupAt;
    const given = [
      ...[platform, ipv6Prefix, trustTrueClientIp, problem, name, chargeDenied, groupBy, scopes, group, placeByKey, quotas.length],
      ...quotas.flatMap(({ name, by, algorithm, place, amount, span, refill }) => [name, by, algorithm, place, amount, span, refill]),
      ...[isTimeless, shards, minTtlMs, slice, lifetimeMs, deadlineMs, grace],
    ];
    for (const one of given) push(typeof one === "boolean" ? Number(one) : one);
    this.#limit = glue.Limit.make();
    if (!this.#limit) left(-1 - oneMore());
    this.quotas = quotas.length;
    this.#borrows = slice > 0;
  }

  /** The name of an object and what it is asked, if it is, and the number of the call. That is negative if nobody waits for the answer. */
  ask({ kind, key, others, token, cost, now, extra, expires }) {
    const texts = [...(token === undefined ? [] : [kind === GRANT ? `${expires} ${token}` : token]), ...others];
    if (texts.length > 0) for (const text of [...texts, key]) push(text);
    const asked = left(this.#limit.ask(kind, texts.length > 0 ? 0 : write(key), cost, now, extra));
    return { asked, call: oneMore() };
  }

  read({ key }, answer, call = 0) {
    if (this.#borrows) push(key);
    const returned = this.#limit.read(write(answer), Math.abs(call));
    if (returned < 0) left(returned);
    return numbers(this.quotas);
  }

  due(now) {
    const text = left(this.#limit.due(now));
    const end = text.indexOf("\n");
    return text === "" ? undefined : { key: text.slice(0, end), asked: text.slice(end + 1), call: oneMore() };
  }

  ended({ key, kind }, call) {
    push(key);
    this.#limit.ended(kind, Math.abs(call));
  }

  failed(how, message) {
    left(this.#limit.failed(how, write(message)));
  }

  free() {
    this.#limit.free();
  }
}

/** The limiter of the package, over a namespace whose objects are a function. */
class OwnLimiter {
  #calls = [];

  constructor(options, ready, objects = () => "") {
    this.core = new Core(options, lends({ ...EXACT, dimensions: "grouped" }, ready), anyRule);
    const answer = (asked) => {
      this.#calls.push(asked);
      return objects(asked);
    };
    const borrowing = ready.slice > 0 ? (store) => (this.borrowing = new StoreBorrowing(store, ready)) : undefined;
    this.stubs = new Stubs(this.core, { getByName: (name) => ({ answer: (text) => answer(`${name}?${text}`) }) }, undefined, { ...ready, borrowing });
  }

  /** The name of an object and what it is asked. */
  ask(question) {
    this.#calls = [];
    this.stubs.send(callOf(this.#byOwn(question)));
    return this.#calls[0];
  }

  /** The same along with a borrower's question. */
  lend(question, loan) {
    return this.stubs.words(this.#byOwn(question), loan, false).join("?");
  }

  read(question, answer) {
    this.stubs.answered(callOf(this.#byOwn(question)), answer);
    return this.core.decision;
  }

  /** The question by the limiter's own policy. */
  #byOwn(question) {
    return Object.assign(question, { policy: this.core.policy });
  }
}

/** The storage of an object. It notes what is done with it. */
class Storage {
  rows = new Map();
  alarm = undefined;
  /** What fails. */
  fails = undefined;
  #log = [];
  /** The names of the rows in order, until there are others. */
  #names = undefined;

  /** Something else writes a row. */
  write(name, row) {
    this.rows.set(name, row);
    this.#names = undefined;
  }

  kv = {
    get: (key) => {
      this.#does("get", key);
      return this.rows.get(key);
    },
    put: (key, value) => {
      this.#does("put", key, value);
      if (!this.rows.has(key)) this.#names = undefined;
      this.rows.set(key, value);
    },
    delete: (key) => {
      this.#does("delete", key);
      return this.rows.delete(key);
    },
    list: ({ startAfter, limit }) => {
      this.#does("list", startAfter ?? "");
      this.#names ??= [...this.rows.keys()].sort((one, other) => (one < other ? -1 : 1));
      const names = this.#names.filter((name) => this.rows.has(name) && (startAfter === undefined || name > startAfter));
      return names.slice(0, limit).map((name) => [name, this.rows.get(name)]);
    },
  };

  transactionSync(run) {
    this.#does("transaction");
    const before = new Map(this.rows);
    try {
      run();
    } catch (thrown) {
      this.rows = before;
      throw thrown;
    }
  }

  setAlarm(at) {
    this.#does("alarm", at);
    this.alarm = at;
  }

  /** What was done since the last time. */
  get noted() {
    return this.#log.splice(0);
  }

  #does(...what) {
    this.#log.push(what.join(" "));
    if (this.fails === what[0]) throw new Error("the disk is full");
  }
}

class RustCounter {
  #counter;

  constructor(storage) {
    this.#counter = new glue.ObjectCounter(new ObjectRows(storage), storage.alarm);
  }

  answer(question, clock) {
    return left(this.#counter.answer(write(question), clock));
  }

  sweep(clock) {
    const swept = this.#counter.sweep(clock);
    if (swept < 0) left(swept);
    return swept;
  }
}

const ownCounter = (storage) => new Counter(new Rows(storage), storage.alarm, BALANCES);

/** A decision that was read, or the kind of an error. No decision has numbers that no double tells apart. */
const shown = ({ value, kind }) => value?.map((number) => Math.min(number, 2 ** 53)) ?? kind;

/** What a sweep returns. */
const [NOTHING, SOME, MORE] = [0, 1, 2];

/** An answer, or the status and the kind of an error. */
const kindOf = (answer) => (answer.startsWith("06") ? severalOf(answer).map(kindOf).join() : (/^\d+ \w+(?=:)/.exec(answer)?.[0] ?? rounded(answer)));

/** The answers to several calls. */
function severalOf(answer) {
  const [bytes, answers] = [Buffer.from(answer, "hex"), []];
  for (let at = 1; at < bytes.length; ) {
    const [status, length] = [bytes.readUInt16LE(at), bytes.readUInt32LE(at + 2)];
    const said = bytes.subarray(at + 6, at + 6 + length);
    answers.push(status === 200 ? said.toString("hex") : `${status} ${said}`);
    at += 6 + length;
  }
  return answers;
}

/** Several calls as one, of whole bytes. */
const several = (calls) => `06${calls.map((call) => little(call.length >> 1, 4) + call.slice(0, call.length & ~1)).join("")}`;

/** The same, with the message of an error. What is corrupt is described in other words. */
const said = (answer) => (answer.startsWith("500 corrupt") ? kindOf(answer) : rounded(answer.replace(/ \(\d+ bytes were left to read\)$/, "")));

/** Waits past 2^53 ms are sums of up to 65 waits for a bucket that takes 9,000 years. Those of the package are rounded. */
function rounded(answer) {
  const bytes = Buffer.from(answer, "hex");
  const flagsAt = 2 + (bytes[1] & 1 ? 24 : 0) + (bytes[1] & 2 ? 8 : 0);
  if (bytes[0] !== 4 || (bytes[flagsAt] & 8) === 0) return answer;
  const ends = [];
  for (let at = flagsAt + 1; at < bytes.length; at++) if (bytes[at] < 128) ends.push(at + 1);
  // After the binding quota, the instant and the delay.
  const wait = bytes.subarray(ends[2], ends[3]).reduceRight((sum, byte) => sum * 128 + (byte & 127), 0);
  return wait > 2 ** 53 ? `${answer.slice(0, 2 * ends[2])} long ${answer.slice(2 * ends[3])}` : answer;
}

/** An object, three times: of Rust, of the package, and of both by turns. */
class Objects {
  #random;
  #counters = [];
  #storages = [new Storage(), new Storage(), new Storage()];

  constructor(random) {
    this.#random = random;
    this.restart();
  }

  /** The platform drops the object from memory. */
  restart() {
    const [rust, own, both] = this.#storages;
    this.#counters = [new RustCounter(rust), ownCounter(own), this.#random.chance(0.5) ? new RustCounter(both) : ownCounter(both)];
  }

  /** The answer of all. */
  answer(question, clock, words = said) {
    const answers = this.#counters.map((counter) => counter.answer(question, clock));
    this.#areSame(answers, words, `${question} at ${clock}`);
    return answers[1];
  }

  /** The alarm fires. */
  sweep(clock) {
    for (const storage of this.#storages) storage.alarm = undefined;
    const swept = this.#counters.map((counter) => tried(() => counter.sweep(clock)));
    this.#areSame(swept, ({ value, kind, message }) => value ?? [kind, message], `a sweep at ${clock}`);
    return swept[1].value;
  }

  /** The platform deletes all that is stored. */
  forget() {
    for (const { rows } of this.#storages) rows.clear();
    this.restart();
  }

  /** Something else writes a row. */
  write(name, row) {
    for (const storage of this.#storages) storage.write(name, row);
  }

  fail(what) {
    for (const storage of this.#storages) storage.fails = what;
  }

  get names() {
    return [...this.#storages[0].rows.keys()];
  }

  row(name) {
    return this.#storages[0].rows.get(name);
  }

  get alarm() {
    return this.#storages[0].alarm;
  }

  #areSame([rust, ...others], words, what) {
    const [log, ...logs] = this.#storages.map(({ noted }) => noted);
    others.forEach((other, nth) => {
      assert.deepEqual(words(other), words(rust), what);
      assert.deepEqual(logs[nth], log, `what is stored for ${what}`);
    });
  }
}

// Policies and questions.

const TEXTS = [
  ...["user:42", "a", "a/b", "/a", "a//b", "a b", "sub:a%20b", "sub:a b", "key:x", "ip:1.2.3.4", "é", "x~y", "%", "ip:%2F", "a\nb", "?"],
  "x".repeat(200),
];

/** A quota with numbers that are small, usual, or as large as they can be. */
function quotaOf(random, algorithm, isSmall) {
  const usual = [1, 1_000, 1_000, 60_000, 3_600_000, 86_400_000, 2 ** 31, random.size(2 ** 40)];
  const span = isSmall ? random.pick(1, 7, 100, 1_000) : random.pick(...usual);
  const most = Math.floor(MAX_UNITS / span);
  const amount = Math.max(random.chance(0.1) ? most - random.below(3) : Math.min(1 + random.below(random.pick(2, 5, 20, 300)), most), 1);
  const refill = random.chance(0.1) ? random.size(2 ** 45) : 1 + random.below(10);
  const base = 1 + random.below(5_000);
  switch (algorithm) {
    case LOG:
      return { algorithm, amount: Math.min(amount, 1_000), span };
    case BUCKET:
    case LEAKY:
      return { algorithm, amount, span, refill };
    case SLOTS:
      return { algorithm, amount: Math.min(amount, random.pick(2, 5, 1_000)), span, refill: Number(random.chance(0.3)) };
    case PENALTY:
      return { algorithm, amount: base + random.below(100_000), span: base, refill: 1 + random.below(4) };
    case CALENDAR:
      return calendarQuota((end) => random.below(end), START, amount);
    case BY_HAND:
      return { algorithm, amount: random.size(YEAR), span: 0 };
    case BALANCE:
      return { algorithm, amount: random.pick(20, 1_000, random.size(MAX_UNITS)), span: 0, part: BALANCES };
    default:
      return { algorithm, amount, span };
  }
}

/** A policy that can be lent, one of a gate, or any other. Some cannot be. */
function policyOf(random, name) {
  const count = random.pick(1, 1, 1, 2, 2, 3, 1 + random.below(8));
  const isSmall = random.chance(0.5);
  const kind = random.pick("any", "any", "any", "lent", "lent", "gate");
  const [lendable, counting] = [[FIXED, SLIDING, BUCKET, CALENDAR], [FIXED, SLIDING, LOG, BUCKET, LEAKY, CALENDAR]];
  const algorithms = { any: [...counting, SLOTS, PENALTY, BY_HAND], lent: lendable, gate: counting };
  const quotas = Array.from({ length: count }, () => quotaOf(random, random.pick(...algorithms[kind]), isSmall));
  const hasBalance = kind === "any" && count < 7 && random.chance(0.4);
  const included = hasBalance && random.chance(0.7) ? [quotaOf(random, random.pick(FIXED, BUCKET, CALENDAR), isSmall)] : [];
  if (hasBalance) quotas.splice(random.below(count + 1), 0, ...included, { ...quotaOf(random, BALANCE, isSmall), refill: included.length });
  const options = { ...optionsWith(...quotas), name, chargeDenied: kind !== "lent" && random.chance(0.2) };
  if (kind === "any") {
    const dimensions = random.pick([undefined], [undefined], ["user"], ["user", "tenant"], ["user", "tenant", undefined, "x"]);
    for (const quota of options.quotas) quota.by = random.pick(...dimensions);
    // What a balance covers counts by its key.
    options.quotas.forEach((quota, nth) => quota.algorithm === BALANCE && quota.refill === 1 && (quota.by = options.quotas[nth - 1].by));
    const isGrouped = !hasBalance || new Set(options.quotas.map(({ by }) => by)).size > 1;
    if (dimensions.length > 1 && isGrouped) options.groupBy = options.quotas.at(-1).by;
  } else if (kind === "gate") {
    // Its policies are in order: what blocks is the last.
    if (count < 8 && random.chance(0.3)) options.quotas.push({ ...options.quotas[0], ...quotaOf(random, BY_HAND, false), refill: 0, part: undefined });
    options.quotas.forEach((quota, nth) => Object.assign(quota, { name: `q${nth}`, by: "k" }));
    options.scopes = options.quotas.map((_, nth) => `${name}@${Math.floor(Math.min(nth, count - 1) / 2)}`).join(",");
    if (random.chance(0.5)) options.placeByKey = true;
    else {
      // A group has its own dimension.
      options.quotas.forEach((quota, nth) => (quota.by = options.scopes.split(",")[nth].split("@")[1]));
      options.groupAt = 0;
    }
  }
  return options;
}

let named = 0;

/** The options of a policy, and of some of the same name with other limits. */
function optionsOf(random) {
  const options = policyOf(random, `p${(named += 1)}`);
  const less = (quota) => ({ ...quota, amount: quota.algorithm >= PENALTY ? quota.amount : Math.max(quota.amount - random.below(3), 1) });
  const changed = () => ({ ...options, quotas: options.quotas.map(less), chargeDenied: options.chargeDenied !== random.chance(0.1) });
  return [options, ...Array.from({ length: random.pick(0, 0, 1, 2) }, changed)];
}

/** One of the limits, or a part of it, or far more. */
function costOf(random, { quotas }) {
  const { amount } = random.pick(...quotas);
  const far = random.chance(0.2) ? random.size(Number.MAX_SAFE_INTEGER) : amount + 1;
  return random.pick(1, 1, 1, 1, 1, 1, 0, 2, random.below(9), random.size(amount), amount, far);
}

const spanOf = (random) => random.pick(0, 1, 50, 1_000, 60_000, random.size(86_400_000), random.size(2 ** 45), Number.MAX_SAFE_INTEGER);

/** A borrower's question about one of the loans of a row. */
function loanOf(random, row = "") {
  const leased = Buffer.from(row.slice(12, row.indexOf(".")), "hex");
  const loans = Math.floor((leased.length - 16) / 24);
  const held = loans > 0 ? Number(leased.readBigUInt64LE(16 + 24 * random.below(loans))) : 7;
  const some = () => random.pick(0, 1, random.below(20), random.size(2 ** 53 - 1));
  return {
    ...{ wanted: random.pick(random.below(50), some()), within: random.pick(random.size(60_000), some()) },
    owed: random.chance(0.7) ? 0 : some(),
    lifetime: random.pick(60_000, random.size(60_000), some()),
    back: random.chance(0.6) ? { loan: random.chance(0.9) ? held : some(), unspent: some(), kept: some() } : undefined,
  };
}

/** A text with some other characters, without some of them, or with more. If it is wild, they may be numbers that no double tells apart. */
function garbled(random, text, isWild = false) {
  for (let times = random.pick(1, 1, 2, 5); times > 0; times--) {
    const at = random.below(text.length + 1);
    const numbers = ["f".repeat(16), "0".repeat(16), "ffffffffffff1f00"];
    const digits = isWild && random.chance(0.3) ? random.pick(...numbers) : random.pick(..."0123456789abcdef");
    const other = random.chance(0.7) ? digits : random.pick("g", " ", "?", "A", "é", ".", ":", "");
    const [before, after] = [text.slice(0, at), text.slice(at)];
    text = before + random.pick(other + after.slice(other.length), "", other + after, after.slice(random.pick(1, 2, 16)));
  }
  return text;
}

const bounded = (instant) => Math.min(Math.max(instant, 0), MAX_INSTANT);

/** Limiters of a name, and their objects. */
class World {
  #random;
  #ready;
  #limiters;
  #objects = new Map();
  #keys;
  #tokens;
  /** The object's clock, and the caller's. */
  #clock = START;
  #now = START;
  steps = 0;
  /** How often an answer was of each kind. */
  #seen;

  constructor(random, seen) {
    this.#random = random;
    this.#seen = seen;
    const [minTtlMs, shards] = [random.pick(0, 0, 0, 1, 5_000, 86_400_000), random.pick(0, 0, 1, 3, 1_000_003, 2 ** 32 - 1, 2 ** 32)];
    this.#ready = readyWith({ isTimeless: random.chance(0.5), shards, minTtlMs });
    this.#limiters = optionsOf(random).flatMap((options) => {
      const [own, rust] = [tried(() => new OwnLimiter(options, this.#ready)), tried(() => new RustLimiter(options, this.#ready))];
      assert.equal(own.kind, rust.kind, JSON.stringify([own.message, rust.message, options]));
      return own.value ? [{ options, own: own.value, rust: rust.value }] : [];
    });
    this.#keys = Array.from({ length: random.pick(1, 2, 4) }, () => random.pick(...TEXTS));
    this.#tokens = Array.from({ length: random.pick(1, 3, 10) }, (_, nth) => `token-${nth}-${random.pick("", "é", "x".repeat(100))}`);
  }

  get shown() {
    return JSON.stringify({ options: this.#limiters.map(({ options }) => options), ready: this.#ready, clock: this.#clock, now: this.#now });
  }

  play() {
    const random = this.#random;
    if (this.#limiters.length === 0) return;
    for (let left = random.pick(5, 50, 200); left > 0; left--) {
      this.steps += 1;
      const act = random.below(100);
      if (act < 78) this.#ask();
      else if (act < 90) this.#forward();
      else if (act < 94) this.#sweep();
      else if (act < 96) this.#object?.restart();
      else if (act < 98) this.#garble();
      else this.#fail();
    }
    for (const { rust } of this.#limiters) rust.free();
  }

  /** One of the objects that were asked. */
  get #object() {
    return this.#random.pick(...this.#objects.values());
  }

  #question({ quotas }, dimensions) {
    const random = this.#random;
    const kind = random.pick(...Array(12).fill(CHECK), PEEK, PEEK, SETTLE, SETTLE, REFUND, REFUND, BLOCK, BLOCK, RESET, ...(quotas.some(({ algorithm }) => algorithm === BALANCE) ? Array(8).fill(GRANT) : []));
    const question = ask(kind, random.pick(this.#now, this.#now, this.#now, this.#now - random.size(2_000), this.#now + random.size(2_000)));
    // Dimensions of one name have one key.
    const keys = new Map(dimensions.map((name) => [name, random.pick(...this.#keys)]));
    const others = dimensions.map((name) => keys.get(name));
    Object.assign(question, { key: others.pop(), others, cost: costOf(random, { quotas }) });
    const [holds, instants] = [quotas.some(({ algorithm }) => algorithm === SLOTS), [this.#now, this.#clock, MAX_INSTANT, Number.MAX_SAFE_INTEGER]];
    if (kind === GRANT) [question.cost, question.expires] = [random.pick(random.below(30), random.size(MAX_UNITS)), random.pick(MAX_INSTANT, bounded(question.now + random.pick(1, -1, 1, 1, 1) * random.size(200_000)))];
    if (kind === SETTLE || kind === GRANT || (kind === CHECK && random.chance(holds ? 0.95 : 0.3))) question.token = random.pick(...this.#tokens);
    if (kind === SETTLE && random.chance(0.4)) question.cost = -1;
    if (kind === BLOCK || question.token !== undefined) question.extra = spanOf(random);
    if (kind === REFUND) question.extra = random.chance(0.3) ? Math.max(this.#now - random.size(100_000), 0) : random.pick(...instants);
    return question;
  }

  #ask() {
    const random = this.#random;
    const { options, own, rust } = random.pick(...this.#limiters);
    const question = this.#question(options, own.core.dimensions);
    const [written, expected] = [tried(() => own.ask(question)), tried(() => rust.ask(question).asked)];
    assert.deepEqual(written, expected, JSON.stringify(question));
    if (written.kind) return this.#saw(`limiter ${written.kind}`);
    let asked = written.value;
    const name = asked.slice(0, asked.lastIndexOf("?"));
    if (!this.#objects.has(name)) this.#objects.set(name, new Objects(random));
    const objects = this.#objects.get(name);
    if (question.kind === CHECK && question.token === undefined && random.chance(0.4)) {
      asked = own.lend(question, loanOf(random, objects.row(own.core.storage(question).rows[0])));
    }
    const text = asked.slice(name.length + 1);
    const answer = objects.answer(text, this.#clock);
    this.#saw({ "0400": "plain", "0401": "granted", "0402": "denied for" }[answer.slice(0, 4)] ?? kindOf(answer));
    const [read, known] = [tried(() => own.read(question, answer)), tried(() => rust.read(question, answer))];
    if (read.value?.[PAID] > 0) this.#saw("paid");
    if (read.value && question.kind === GRANT && !read.value[REPLAY]) this.#saw("granted units");
    if (known.kind === "corrupt") assert.equal(read.kind, known.kind);
    else assert.deepEqual(read, known, `${answer}: ${JSON.stringify(question)}`);
    // What cannot be read stays so until a reset.
    if (known.kind === "corrupt" && random.chance(0.2)) objects.forget();
    if (answer.startsWith("0401")) this.#peekAround(own, objects, question);
    if (random.chance(0.02)) this.#misread(own, rust, question, garbled(random, answer));
    if (random.chance(0.02)) objects.answer(garbled(random, text), this.#clock, kindOf);
  }

  /** Looks at loans before and after, by clocks that step back. */
  #peekAround(own, objects, question) {
    const random = this.#random;
    for (let times = 4; times > 0; times--) {
      const ms = random.pick(1, -1) * random.size(random.pick(100, 5_000, 100_000));
      const asked = own.ask({ ...question, kind: PEEK, now: bounded(question.now + ms) });
      objects.answer(asked.slice(asked.lastIndexOf("?") + 1), bounded(this.#clock + ms));
    }
  }

  #misread(own, rust, question, answer) {
    const [read, known] = [tried(() => own.read(question, answer)), tried(() => rust.read(question, answer))];
    assert.deepEqual(shown(read), shown(known), `reads ${answer}`);
  }

  #saw(what) {
    this.#seen[what] = (this.#seen[what] ?? 0) + 1;
  }

  #forward() {
    const random = this.#random;
    const far = random.chance(0.1) ? random.size(40 * YEAR) : 0;
    const ms = random.pick(1, random.size(100), random.size(5_000), random.size(100_000), random.size(10 * 86_400_000), far);
    if (random.chance(0.9)) this.#clock = bounded(this.#clock + (random.chance(0.85) ? ms : -ms));
    this.#now = random.chance(0.9) ? this.#clock : bounded(this.#clock + random.pick(1, -1) * random.size(200_000));
    const latest = Math.min(...this.#limiters.map(({ options }) => latestKnown(options.quotas))) - 5_000;
    [this.#clock, this.#now] = [Math.min(this.#clock, latest), Math.min(this.#now, latest)];
  }

  #sweep() {
    const object = this.#object;
    if (!object) return;
    if (object.alarm > this.#clock && this.#random.chance(0.7)) this.#clock = object.alarm;
    object.sweep(this.#clock);
  }

  /** Something else has written to a row. */
  #garble() {
    const random = this.#random;
    const object = this.#object;
    if (!object || object.names.length === 0) return;
    const name = random.pick(...object.names);
    const [row, other] = [object.row(name), garbled(random, object.row(name))];
    // Loans of more than there is make waits that are rounded: see `core-lending.test.mjs`. And of numbers that nobody writes into a decision,
    // Rust makes others.
    const loans = (text) => text.slice(12, text.indexOf("."));
    const decision = (text) => text.slice(text.indexOf(".") + 35);
    const isLonger = loans(row).length === loans(other).length && loans(row) !== loans(other);
    if (isLonger || (name.startsWith("once:") && ![decision(row), ""].includes(decision(other)))) return;
    object.write(name, other);
    object.restart();
  }

  /** The storage fails for a while. */
  #fail() {
    const random = this.#random;
    const object = this.#object;
    object?.fail(random.pick("get", "put", "delete", "alarm", "transaction", "list"));
    for (let times = 3; times > 0; times--) random.chance(0.3) ? this.#sweep() : this.#ask();
    object?.fail(undefined);
  }
}

// Borrowers.

/** A limiter of Rust and one of the package, which borrow from an object. */
class Borrowing {
  #random;
  #own;
  #rust;
  #objects;
  #now = START;
  /** What the package's limiter has asked in a step. */
  #calls = [];
  /** The calls on their way. */
  #sent = [];
  steps = 0;
  loans = 0;

  constructor(random) {
    this.#random = random;
    this.#objects = new Objects(random);
    const span = random.pick(1_000, 10_000, 60_000, 86_400_000);
    const numbers = () => ({ amount: random.pick(3, 20, 100, 5_000), span, refill: random.pick(1, 5, 100) });
    const quota = () => ({ algorithm: random.pick(FIXED, SLIDING, BUCKET), ...numbers() });
    const options = optionsWith(...Array.from({ length: random.pick(1, 1, 2) }, quota));
    const terms = { slice: random.pick(5, 50, 500), lifetimeMs: random.pick(1_000, 60_000), deadlineMs: random.pick(500, 2_000), grace: random.pick(0, 1, 3) };
    const ready = readyWith({ isTimeless: random.chance(0.5), ...terms });
    this.#rust = new RustLimiter(options, ready);
    const send = (asked) => new Promise((resolve, reject) => this.#calls.push({ asked, resolve, reject }));
    this.#own = new OwnLimiter(options, ready, send);
  }

  async play() {
    const random = this.#random;
    for (let left = 200; left > 0; left--) {
      this.steps += 1;
      this.#now += random.pick(0, 1, random.below(20), random.below(200), random.below(random.pick(3_000, 100_000)));
      if (random.chance(0.03)) this.#now -= random.below(100_000);
      this.#ask();
      while (this.#sent.length > 0 && random.chance(0.7)) await this.#end();
    }
    while (this.#sent.length > 0) await this.#end();
    this.#rust.free();
  }

  #ask() {
    const random = this.#random;
    const kind = random.pick(...Array(30).fill(CHECK), PEEK, SETTLE, RESET);
    const [key, cost] = [random.pick("user:1", "user:1", "user:2", "ip:1.2.3.4"), random.pick(1, 1, 1, 1, 0, 3)];
    const question = { ...ask(kind, kind === RESET ? 0 : this.#now), policy: this.#own.core.policy, key, cost };
    if (kind === SETTLE || (kind === CHECK && random.chance(0.03))) Object.assign(question, { token: "t", extra: kind === CHECK ? 60_000 : 0 });
    this.#calls = [];
    const sent = this.#own.stubs.send(callOf(question));
    const waited = sent && this.#calls.pop();
    // What is told is in no order.
    void this.#own.borrowing.tell(this.#now);
    const byText = (one, other) => (one.asked < other.asked ? -1 : 1);
    const own = [...this.#calls.sort(byText), ...(waited ? [waited] : [])];
    const rust = this.#expected(question);
    assert.deepEqual(own.map(({ asked }) => asked), [...rust.background.sort(byText), ...rust.waited].map(({ asked }) => asked));
    if (!sent) assert.deepEqual(this.#own.core.decision, rust.decision);
    [...rust.background, ...rust.waited].forEach((call, nth) => this.#sent.push({ ...call, own: own[nth], isWaited: call === rust.waited[0] }));
  }

  /** What Rust's limiter asks. */
  #expected(question) {
    const { asked, call } = this.#rust.ask(question);
    const decision = numbers(this.#rust.quotas);
    const [background, waited] = [[], []];
    if (call < 0) background.push({ asked, call, question: { ...question, cost: 0 } });
    else if (asked !== "") waited.push({ asked, call, question });
    for (let due = this.#rust.due(this.#now); due; due = this.#rust.due(this.#now)) {
      background.push({ asked: due.asked, call: due.call, question: { ...ask(CHECK, this.#now), cost: 0, key: due.key } });
    }
    return { decision, background, waited };
  }

  /** The object answers a call, or the answer is lost. */
  async #end() {
    const random = this.#random;
    const [{ own, question, call, isWaited, asked }] = this.#sent.splice(random.chance(0.8) ? 0 : random.below(this.#sent.length), 1);
    const answer = this.#objects.answer(asked.slice(asked.lastIndexOf("?") + 1), this.#now);
    if (random.chance(0.05)) {
      const error = new Error("Network connection lost.");
      if (isWaited) assert.equal(tried(() => this.#own.stubs.threw(callOf(question), error)).kind, "timeout");
      else own.reject(error);
      this.#rust.ended(question, call);
    } else {
      if (answer.startsWith("0401")) this.loans += 1;
      const expected = tried(() => this.#rust.read(question, answer, call));
      if (question.kind >= SETTLE || expected.kind) this.#rust.ended(question, call);
      if (isWaited) assert.deepEqual(tried(() => this.#own.read(question, answer)), expected);
      else own.resolve(answer);
    }
    if (isWaited) own.resolve();
    for (let ticks = 4; ticks > 0; ticks--) await undefined;
  }
}

// Calls that no limiter makes.

const little = (value, bytes = 8) => {
  const buffer = Buffer.alloc(8);
  buffer.writeBigUInt64LE(BigInt(value));
  return buffer.subarray(0, bytes).toString("hex");
};

const WILD = [0, 1, 2, MAX_UNITS, MAX_UNITS + 1, MAX_INSTANT, MAX_INSTANT + 1, 2 ** 53 - 1, 2n ** 53n + 1n, 2n ** 63n + 1n, 2n ** 64n - 1n];

function anyCall(random) {
  const number = (usual, part = 0.2) => little(random.chance(part) ? random.pick(...WILD, random.size(2 ** 52)) : usual);
  const isUsual = random.chance(0.6);
  const dimensions = random.pick(1, 1, 2, 3);
  const count = isUsual ? dimensions + random.below(2) : random.pick(1, 1, 2, 3, 3, 8, 9, 0);
  const quotas = Array.from({ length: count }, (_, nth) => {
    const dimension = isUsual || random.chance(0.95) ? Math.min(nth, dimensions - 1) : random.below(16);
    const algorithm = isUsual ? 1 + random.below(6) : random.pick(1, 2, 3, 4, 5, 6, 7, random.below(16));
    const [window, bucket, penalty] = [[5, 1_000, 0], [5, 1_000, 3], random.pick([5_000, 100, 2], [5_000, 0, 1])];
    const usual = { 4: bucket, 5: bucket, 6: [5, 1_000, Number(!isUsual && random.chance(0.3))], 7: penalty }[algorithm] ?? window;
    return little((dimension << 4) | algorithm, 1) + usual.map((usual) => number(usual, 0.02)).join("");
  });
  const rowsLeft = Math.min(dimensions, Math.max(count, 1)) + (random.chance(0.95) ? 0 : random.pick(-1, 1));
  const rows = Array.from({ length: rowsLeft }, (_, nth) => {
    const name = random.chance(0.98) ? `tg1:${"abc"[nth]}` : random.pick("", "a\n", "a b", "é", "~", "k".repeat(1_024), "k".repeat(1_025), "\x7f");
    return little(Buffer.byteLength(name), 2) + Buffer.from(name).toString("hex");
  });
  const action = random.pick(1, 1, 2, 3, 4, 5, 5, 6, 7, 8, random.below(12));
  const flags = random.chance(0.95) ? random.pick(0, 2, 2, 2, 4, 6, 3, 7) : random.below(256);
  const token = random.pick("00", "11", "ff").repeat(16);
  const head = number(random.pick(0, 1, 1, 1, 2, 9, random.size(2 ** 53 - 1)), 0.1) + number(START, 0.1) + number(0);
  const once = flags & 4 ? token + number(60_000, 0.5) : "";
  const some = (times) => Array.from({ length: times }, () => number(random.below(100), 0.4)).join("");
  const tails = { 3: number(START), 5: some(random.pick(4, 4, 7, 7, 3)), 6: token, 7: token, 8: number(500) };
  const begin = [random.chance(0.98) ? 4 : random.below(9), action, flags, count].map((byte) => little(byte, 1)).join("");
  const end = random.chance(0.95) ? "" : random.pick("0", "x", "00", "zz");
  return begin + quotas.join("") + rows.join("") + head + once + (tails[action] ?? "") + end;
}

// The class, outside of the platform.

const worker = "export class DurableObject { constructor(ctx) { this.ctx = ctx; } } export const waitUntil = (work) => { globalThis.kept?.push(work); };";
const found = JSON.stringify({ url: `data:text/javascript,${encodeURIComponent(worker)}`, shortCircuit: true });
const resolve = `export const resolve = (name, context, next) => (name === "cloudflare:workers" ? ${found} : next(name, context));`;
register(`data:text/javascript,${encodeURIComponent(resolve)}`);

/** A namespace of objects of the package. */
class Namespace {
  storages = new Map();
  #objects = new Map();
  #Object;

  constructor(TidegateObject) {
    this.#Object = TidegateObject;
  }

  object(name) {
    if (!this.storages.has(name)) this.storages.set(name, this.#storage(name));
    if (!this.#objects.has(name)) this.#objects.set(name, new this.#Object({ storage: this.storages.get(name) }));
    return this.#objects.get(name);
  }

  getByName(name) {
    return { answer: async (question) => this.object(name).answer(question) };
  }

  /** The platform drops all objects from memory. */
  restart() {
    this.#objects.clear();
  }

  #storage(name) {
    const storage = new Storage();
    const deleteAll = async () => {
      this.storages.delete(name);
      this.#objects.delete(name);
    };
    return Object.assign(storage, { getAlarm: async () => storage.alarm ?? null, deleteAll });
  }
}

describe("Durable Objects", () => {
  test("ask, answer, store and read as those of Rust do", async () => {
    const seen = {};
    const kinds = ["plain", "granted", "denied for", "paid", "granted units", "400 token_reused", "400 unknown_charge", "500 corrupt", "500 refused", "limiter invalid"];
    const isRare = (kind) => !(seen[kind] > STEPS / 1_000);
    const play = (random) => {
      const world = new World(random, seen);
      try {
        world.play();
      } catch (error) {
        throw new Error(`${error?.message ?? error}; ${world.shown}`, { cause: error });
      }
      return world.steps;
    };
    await playWorlds(STEPS, play, () => kinds.some(isRare));
    assert.deepEqual(kinds.filter(isRare), [], JSON.stringify(seen));
  });

  test("borrow as those of Rust do", async () => {
    let loans = 0;
    await playWorlds(STEPS / 2, async (random) => {
      const borrowing = new Borrowing(random);
      await borrowing.play();
      loans += borrowing.loans;
      return borrowing.steps;
    });
    assert.ok(loans > STEPS / 100, `${loans} loans`);
  });

  test("answer what no limiter asks", async () => {
    const seen = { answers: 0, errors: 0 };
    await playWorlds(STEPS, (random) => {
      const objects = new Objects(random);
      for (let left = 100; left > 0; left--) {
        const one = anyCall(random);
        const call = random.chance(0.1) ? several([one, ...Array.from({ length: random.below(4) }, () => anyCall(random))]) : one;
        const answer = objects.answer(random.chance(0.1) ? garbled(random, call, true) : call, START + random.below(3_000), kindOf);
        seen[answer.startsWith("04") ? "answers" : "errors"] += 1;
      }
      return 100;
    });
    assert.ok(Math.min(seen.answers, seen.errors) > STEPS / 10, JSON.stringify(seen));
    for (const nothing of [undefined, null, 5, {}]) assert.match(ownCounter(new Storage()).answer(nothing, START), /^500 corrupt: /);
    // The cost of a slot may be more than a double tells apart.
    const objects = new Objects(new Random(SEED));
    const slot = (cost) => {
      const quota = little(6, 1) + [5, 1_000, 0].map((number) => little(number)).join("");
      const [row, token] = ["010061", "11".repeat(16)];
      return objects.answer(`04010601${quota}${row}${little(cost)}${little(0)}${little(0)}${token}${little(60_000)}`, START);
    };
    assert.match(slot(2n ** 64n - 1n), /^040000/);
    assert.match(slot(2n ** 64n - 1n), /^040004/, "it is the same again");
    for (const cost of [1, 2n ** 64n - 2n, 2n ** 53n - 1n]) assert.match(slot(cost), /^400 token_reused: /);
  });

  test("refuse rows that nobody writes", () => {
    const objects = new Objects(new Random(SEED));
    const span = 60_000;
    const lendable = optionsWith({ algorithm: SLIDING, amount: 100, span }, { algorithm: BUCKET, amount: 500, span, refill: 9 });
    const byHand = { algorithm: BY_HAND, amount: YEAR, span: 0 };
    const counted = optionsWith({ algorithm: LOG, amount: 9, span }, { algorithm: SLOTS, amount: 3, span }, byHand);
    const [lent, held] = [lendable, counted].map((options) => new OwnLimiter(options, readyWith({})));
    const about = (kind, more) => ({ ...ask(kind, START), key: "a", ...more });
    const loan = { wanted: 20, within: 1_000, owed: 0, lifetime: 60_000, back: undefined };
    const [token, other] = ["first", "second"].map((token) => ({ token, extra: 60_000 }));
    const questions = [
      ...[lent.lend(about(CHECK), loan), lent.lend(about(CHECK), loan), lent.ask(about(PEEK)), lent.ask(about(RESET))],
      ...[held.ask(about(CHECK, token)), held.ask(about(CHECK, other)), held.ask(about(SETTLE, token)), held.ask(about(RESET))],
    ].map((question) => question.split("?")[1]);
    let clock = START;
    const asks = (at) => objects.answer(questions[at], (clock += 1));
    for (const at of [0, 1, 4, 5]) assert.match(asks(at), /^04/);
    const rows = objects.names.map((name) => [name, objects.row(name)]);
    assert.ok(rows.length === 4 && rows.some(([, row]) => row.indexOf(".") > 60), "one has two loans");
    let refused = 0;
    for (const [name, row] of rows) {
      for (let at = 0; at < row.length; at += 2) {
        const [before, after] = [row.slice(0, at), row.slice(at)];
        for (const other of [before, before + after.slice(1), `${before}g${after.slice(1)}`, `${before}.${after}`, `${before}0${after}`]) {
          objects.write(name, other);
          objects.restart();
          for (const at of name.includes(":sw") ? [2, 0, 3] : [4, 6, 7]) if (asks(at).startsWith("500 corrupt")) refused += 1;
          for (const [name, row] of rows) objects.write(name, row);
        }
      }
    }
    assert.ok(refused > 1_500, `${refused}`);
  });

  test("keep what a log remembers, up to a thousand instants", () => {
    const objects = new Objects(new Random(SEED));
    const own = new OwnLimiter(optionsWith({ algorithm: LOG, amount: 1_000, span: 10_000 }), readyWith({}));
    let clock = START;
    const asks = (more) => objects.answer(own.ask({ ...ask(CHECK, START), key: "user:1", ...more }).split("?")[1], (clock += 1));
    asks({ token: "first", extra: 60_000 });
    for (let nth = 1; nth < 1_010; nth++) asks({});
    // It costs more, and there is no instant left.
    asks({ kind: SETTLE, token: "first", cost: 5 });
    for (let nth = 0; nth < 3; nth++) asks({});
    clock += 10_000;
    asks({});
    objects.restart();
    asks({});
    asks({ kind: RESET });
    assert.match(asks({}), /^04/);
  });

  test("remember as many rows", () => {
    const random = new Random(SEED);
    const own = new OwnLimiter(optionsWith({ algorithm: LOG, amount: 100, span: 10_000_000 }), readyWith({ shards: 1 }));
    const objects = new Objects(random);
    // Two generations of the memory have room for 3,300 such rows.
    const entries = Array.from({ length: 40 }, (_, nth) => little(START + nth) + little(1, 4)).join("");
    const row = `${(START + YEAR).toString(16).padStart(12, "0")}.13${little(40, 4)}${entries}`;
    const about = (kind, nth) => ({ ...ask(kind, START), key: `user:${nth}` });
    for (let nth = 0; nth < 5_000; nth++) objects.write(own.core.storage({ ...about(CHECK, nth), policy: own.core.policy }).rows[0], row);
    const asks = (kind, nth) => objects.answer(own.ask(about(kind, nth)).split("?")[1], START + 1_000);
    // One is looked at all the time.
    for (let nth = 0; nth < 5_000; nth++) nth % 20 === 0 ? asks(PEEK, 3) : asks(nth % 7 === 0 ? CHECK : PEEK, nth);
    for (let nth = 0; nth < 500; nth++) asks(RESET, 4_999 - nth);
    const some = () => random.pick(3, random.below(5_000), 3_000 + random.below(2_000));
    for (let nth = 0; nth < 2_000; nth++) asks(random.pick(CHECK, PEEK, PEEK, PEEK), some());
  });

  test("sweep the same rows", () => {
    const random = new Random(SEED);
    const own = new OwnLimiter(optionsWith({ algorithm: FIXED, amount: 5, span: 300_000 }), readyWith({ shards: 1 }));
    const objects = new Objects(random);
    let clock = START;
    const sweeps = [];
    const asks = (keys) => {
      const question = { ...ask(random.pick(CHECK, CHECK, PEEK), clock), key: `user:${random.below(keys)}` };
      objects.answer(own.ask(question).split("?")[1], clock);
    };
    const sweepAll = (between) => {
      for (sweeps.push(objects.sweep(clock)); sweeps.at(-1) === MORE; sweeps.push(objects.sweep(clock))) between();
    };
    const isDone = () => [SOME, MORE].every((swept) => sweeps.includes(swept));
    const rounds = [[4_000, 60], [1_500, 400], [700, 3_000]];
    // Some seeds need another round until a sweep has more to do.
    for (let round = 0; round < rounds.length || (round < 30 && !isDone()); round++) {
      const [times, apart] = rounds[round % rounds.length];
      for (let nth = 0; nth < times; nth++) {
        clock += random.below(apart + 1);
        asks(4_000);
        if (!(clock >= objects.alarm)) continue;
        sweepAll(() => {
          asks(4_000);
          if (random.chance(0.1)) objects.restart();
        });
      }
    }
    assert.ok(isDone(), String(sweeps));
    clock += 10 * YEAR;
    sweepAll(() => {});
    assert.equal(sweeps.at(-1), NOTHING);
    asks(5);
  });

  test("wait a millisecond for each row before the next sweep", () => {
    // More rows than a fake storage keeps: 80 pages of them, and a part of one. The first ten have expired.
    const storages = [new Storage(), new Storage()];
    const page = (nth) => {
      const row = `${(START + (nth < 10 ? 0 : 10_000_000)).toString(16).padStart(12, "0")}.`;
      return Array.from({ length: nth < 80 ? 1_000 : 5 }, () => [`tg1:${nth}`, row]);
    };
    for (const { kv } of storages) kv.list = ({ startAfter = "tg1:-1" }) => page(Number(startAfter.slice(4)) + 1);
    const counters = [new RustCounter(storages[0]), ownCounter(storages[1])];
    const own = new OwnLimiter(optionsWith({ algorithm: FIXED, amount: 9, span: 300_000 }), readyWith({}));
    const question = own.ask({ ...ask(CHECK, START), key: "a" }).split("?")[1];
    const both = (run) => {
      const [rust, own] = counters.map((counter) => run(counter));
      assert.equal(own, rust);
      assert.deepEqual(storages[1].noted, storages[0].noted);
      return own;
    };
    const swept = new Set();
    for (let nth = 0; nth < 81; nth++) {
      swept.add(both((counter) => counter.sweep(START + 10_000)));
      if (nth === 30) both((counter) => counter.answer(question, START + 10_000));
    }
    assert.deepEqual([...swept], [MORE, SOME]);
    assert.equal(storages[1].alarm, START + 300_000, "what was written meanwhile expires first");
    for (let nth = 0; nth < 81; nth++) both((counter) => counter.sweep(START + 300_000));
    assert.equal(storages[1].alarm, START + 10_000_000);
    for (const ms of [590_000, 600_000, 900_000]) both((counter) => counter.answer(question, START + ms));
    assert.equal(storages[1].alarm, START + 590_000 + 70_005, "it waits a millisecond for each row");
  });

  test("make the same of what is thrown, and of what is no answer", () => {
    const random = new Random(SEED);
    const [options, ready] = [optionsWith({ algorithm: FIXED, amount: 5, span: 1_000 }), readyWith({})];
    const [rust, own] = [new RustLimiter(options, ready), new OwnLimiter(options, ready)];
    const says = [
      ...["is Overloaded.", "Too many requests queued", "too much load", "Too many concurrent"],
      ...["memory limit", "its CPU time limit", "exceeded timeout", "Network connection lost.", "its code was updated"],
      ...["internal error; reference = 0", "a transient issue", "no route", "", "x".repeat(300)],
    ];
    for (const message of says) {
      for (let how = 0; how < 16; how++) {
        const [isFirst, error] = [how > 7, { message, overloaded: (how & 1) > 0, retryable: (how & 2) > 0, remote: (how & 4) > 0 }];
        const { kind, message: shown } = tried(() => rust.failed((how % 8) + (isFirst ? 16 : 0), message));
        assert.deepEqual(lost(error, isFirst), [kind, shown]);
        if (isFirst) assert.deepEqual(tried(() => own.stubs.threw({}, error)), { kind, message: shown });
      }
    }
    assert.equal(tried(() => own.stubs.threw({}, undefined)).kind, "refused");
    const broken = new OwnLimiter(options, ready, () => {
      throw new TypeError("no such object");
    });
    const { message } = tried(() => rust.failed(8, "TypeError: no such object"));
    assert.deepEqual(tried(() => broken.ask(ask(CHECK, START))), { kind: "refused", message });

    const question = ask(CHECK, START);
    callOf(question).noted = {};
    const loan = { wanted: 4, within: 1_000, owed: 0, lifetime: 60_000, back: undefined };
    const questions = [own.ask(ask(CHECK, START)), own.lend(ask(CHECK, START), loan)];
    const [answer, lent] = questions.map((asked) => ownCounter(new Storage()).answer(asked.split("?")[1], START));
    assert.ok(answer.startsWith("0400") && lent.startsWith("0401"));
    const small = (number) => (number < 128 ? little(number, 1) : little((number % 128) + 128, 1) + small(Math.floor(number / 128)));
    const decided = (...numbers) => `0400${numbers.map(small).join("")}`;
    const texts = [
      ...["", "200", "200 Hello", "0103", "Hello", "700 x", "99999 x", " x", "0400", "04", "04ff00", "400 invalid: no: not this", "hello there"],
      ...["500 corrupt: é\nx", "x refused: y", "500 misconfigured: x", "500 corrupt x", "400 invalid:x", "200 invalid: x", "+200 invalid: x"],
      "500 refused: change `new_classes` to `new_sqlite_classes`",
      "5".repeat(300),
      ...["0400000000000102", "0403", answer, lent, `${answer}0`, `${answer}zz`, `${answer}00`],
    ];
    // One of them decides after the last instant, and one knows when a count is reset that is not known.
    texts.push(decided(0, 0, START, 0, 5, 4, 1_001), decided(0, 0, 2 ** 50, 0, 5, 4, 1_001));
    texts.push(decided(0, 0, START, 0, 5, 0, 1_001), decided(0, 0, START, 0, 5, 4, 0));
    const byte = (place, value, text) => text.slice(0, 2 * place) + little(value, 1) + text.slice(2 * place + 2);
    for (const text of [answer, lent]) {
      for (let place = 0; place < text.length / 2; place++) for (let value = 0; value < 256; value++) texts.push(byte(place, value, text));
    }
    for (let left = 2_000; left > 0; left--) texts.push(garbled(random, random.pick(answer, lent, "400 invalid: x"), true));
    for (const text of texts) {
      const [read, known] = [tried(() => own.read(question, text)), tried(() => rust.read(question, text))];
      assert.deepEqual(shown(read), shown(known), text);
      if (known.kind === "invalid") assert.equal(read.message, known.message);
    }
    assert.throws(() => own.read(question, "hello"), (thrown) => /unexpected answer "500 hello"; check that the bound class/.test(thrown[1]));
    assert.throws(() => own.read(question, 5), (thrown) => thrown[0] === "corrupt");
  });

  test("a Worker and an object of two releases understand each other", () => {
    const { steps } = JSON.parse(readFileSync(new URL("../../cloudflare/tests/data/versions.json", import.meta.url), "utf8"));
    const policy = new Policy(optionsWith({ algorithm: FIXED, amount: 100, span: 60_000 }), anyRule);
    const [quotas, object, kinds] = [writtenQuotas(policy), ownCounter(new Storage()), { check: CHECK, lend: CHECK, peek: PEEK, refund: REFUND, settle: SETTLE, reset: RESET }];
    let lent = 0;
    for (const { by, kind, row, now, cost, token, extra = 0, question, granted, call, answer } of steps) {
      const [spent, within, slice, lifetime, loan, unspent, kept] = question ?? [];
      const wanted = Math.min(spent, slice);
      const asked = question && { wanted, within, owed: 0, lifetime, back: loan === undefined ? undefined : { loan, unspent, kept } };
      // A Worker of this version asks in words that the object before knows, and reads its answer.
      const words = writtenCall({ policy }, { kind: kinds[kind], cost, now, token, extra }, asked, quotas, [row], { isTimeless: false, minTtlMs: 0 });
      if (by !== "before") assert.equal(words, call);
      const told = readAnswer(answer, policy);
      assert.deepEqual(told.granted && Object.values(told.granted), granted);
      // An object of this version answers the same to all but a question, whose loan it chooses.
      const own = object.answer(call, now);
      if (by === "both") {
        assert.equal(own, answer, call);
        continue;
      }
      const read = readAnswer(own, policy);
      assert.equal(read.decision[0], told.decision[0], call);
      assert.equal(Boolean(read.granted), Boolean(told.granted), call);
      if (!read.granted) continue;
      assert.ok(read.granted.units <= wanted && read.granted.lasts <= lifetime, call);
      lent += 1;
    }
    assert.equal(lent, 5);
  });

  test("several calls are answered in their order, each in a step of its own, as in Rust", () => {
    const { several: known } = JSON.parse(readFileSync(new URL("../../cloudflare/tests/data/versions.json", import.meta.url), "utf8"));
    assert.equal(together(known.calls), known.call);
    assert.equal(ownCounter(new Storage()).answer(known.call, START + 200), known.answer);
    assert.deepEqual(answersApart(known.answer, known.calls.length), known.answers);
    assert.equal(answersApart(known.answers[1], 3), undefined);
    assert.throws(() => answersApart(known.answer, 4), (thrown) => thrown[0] === "corrupt");
    const [one, object] = [known.calls[0], ownCounter(new Storage())];
    assert.equal(answersApart(object.answer(together(Array(64).fill(one)), START), 64).length, 64);
    assert.match(object.answer(together(Array(65).fill(one)), START), /^400 invalid: durable object: too many calls/);
    assert.match(object.answer(together([one]).slice(0, -2), START), /^400 invalid: /);
    assert.match(answersApart(object.answer(together([together([one])]), START), 1)[0], /^500 unavailable: /);
  });

  test("what keys of one shard have to tell is one call, and a call for each where the object is of an earlier release", async () => {
    const { Tidegate, TidegateObject } = await import("../modules/stores/cloudflare/index.js");
    for (const [shards, isOld, most] of [[1, false, 8], [0, false, 40], [1, true, 48]]) {
      const [namespace, policy] = [new Namespace(TidegateObject), { name: "told", quotas: [{ fixedWindow: { limit: 100, windowMs: 86_400_000 } }] }];
      let calls = 0;
      const answer = async (name, question) => {
        calls += 1;
        if (isOld && question.startsWith("06")) return "500 unavailable: durable object: the call has another version of the protocol";
        return namespace.object(name).answer(question);
      };
      const objects = { getByName: (name) => ({ answer: (question) => answer(name, question) }) };
      const limiter = (leases) => new Tidegate({ namespace: objects, failMode: "closed", shards, leases, policy });
      const kept = (globalThis.kept = []);
      const tidegate = limiter({ grace: 1 });
      const keys = Array.from({ length: 40 }, (_, nth) => `user:${nth}`);
      for (const key of keys) assert.equal((await tidegate.limit(key)).origin, "lease");
      assert.equal(calls, 0);
      // What is told keeps no process alive by itself.
      const alive = setInterval(() => {}, 1_000);
      while (kept.length > 0) await kept.shift();
      clearInterval(alive);
      assert.ok(shards > 0 && !isOld ? calls <= most : calls >= 40 && calls <= most, `${calls} calls`);
      const plain = limiter(false);
      for (const key of keys) assert.equal((await plain.limit(key)).quotas[0].remaining, 98);
    }
  });

  test("a call of another version of the protocol is a failure of the store", () => {
    const own = new OwnLimiter(optionsWith({ algorithm: FIXED, amount: 5, span: 1_000 }), readyWith({}));
    const question = ask(CHECK, START);
    const call = own.ask(question).split("?")[1];
    for (const version of ["03", "07"]) {
      const answer = ownCounter(new Storage()).answer(version + call.slice(2), START);
      assert.match(answer, /^500 unavailable: durable object: the call has another version of the protocol; deploy/);
      assert.equal(tried(() => own.read(question, answer)).kind, "unavailable");
    }
  });

  test("the class answers, wakes again, sweeps and ceases to exist", async () => {
    const { Tidegate, TidegateObject } = await import("../modules/stores/cloudflare/index.js");
    const namespace = new Namespace(TidegateObject);
    const quotas = ["6 / d", { concurrency: { limit: 3, lifetimeMs: 60_000 } }];
    const tidegate = new Tidegate({ namespace, failMode: "closed", policy: { name: "api", quotas } });
    const verdicts = await Promise.all(Array.from({ length: 10 }, () => tidegate.limit("user:1", { estimate: 2 })));
    assert.deepEqual(verdicts.map(({ outcome }) => outcome), [...Array(3).fill("allowed"), ...Array(7).fill("denied")]);
    namespace.restart();
    await tidegate.settle(verdicts[0], { cost: 1 });
    await tidegate.release(verdicts[1]);
    const standing = await tidegate.limit("user:1", { cost: 0, idempotency: { token: "x", ttlMs: 1 } });
    assert.deepEqual(standing.quotas.map(({ remaining }) => remaining), [1, 2]);
    await tidegate.reset("user:1");
    const [[name, storage]] = namespace.storages;
    assert.equal(name, "tg1:api:sl86400000.cc60000:user:1");
    assert.ok(storage.alarm > Date.now() && !storage.rows.has(name) && storage.rows.size === 3, "rows of tokens remain");
    namespace.restart();
    await namespace.object(name).alarm();
    assert.ok(namespace.storages.has(name));
    for (const [once, row] of storage.rows) storage.rows.set(once, `000000000001${row.slice(12)}`);
    await namespace.object(name).alarm();
    assert.equal(namespace.storages.size, 0);

    const policy = { name: "many", quotas: ["60 burst, 1 / d"] };
    const leased = new Tidegate({ namespace, failMode: "open", shards: 2, leases: true, locationHint: "weur", policy });
    const statuses = [];
    for (let nth = 0; nth < 100; nth++) statuses.push((await leased.limit("user:2")).outcome);
    assert.equal(statuses.filter((status) => status === "allowed").length, 60);
    assert.match([...namespace.storages.keys()].join(), /^tg1:shard:[01]of2$/);
    // A storage that fails lets nobody through.
    namespace.restart();
    for (const storage of namespace.storages.values()) storage.fails = "get";
    const { allowed, error } = await leased.limit("user:2", { idempotency: { token: "y", ttlMs: 1 } });
    assert.deepEqual([allowed, error?.kind], [false, "refused"]);
    const apart = ["a", "b"].map((by) => ({ fixedWindow: { limit: 1, windowMs: 1 }, by }));
    assert.throws(() => new Tidegate({ namespace, failMode: "open", policy: { name: "x", quotas: apart } }), { kind: "unsupported" });
  });
});
