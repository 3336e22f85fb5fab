// The lender and the borrowers of the package are the core's: to the same questions at the same times, they give the same answers as its
// WebAssembly does. A failure names the seed and the world; `TIDEGATE_SEED` in the environment plays it again, and `STEPS` is how long.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { copied, decide, expiresAfter, peek, refund, settle, unused, verify, withoutCounts } from "../modules/core/decide.js";
import { later, MAX_INSTANT, MAX_UNITS, since } from "../modules/core/arithmetic.js";
import { canBorrow } from "../modules/core/lending/borrower.js";
import { Borrowers } from "../modules/core/lending/borrowers.js";
import { canLend, Lender } from "../modules/core/lending/lender.js";
import { Policy } from "../modules/core/policy.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { ALLOWED, DENIED, FROM_DENY_CACHE, FROM_LEASE, STATUS, UNKNOWN, WAIT } from "../modules/decision_numbers.js";
import { LOANS } from "../modules/stores/redis/loans.js";
import { calendarQuota, latestKnown, seeded, started } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 6_000);

const START = 1_800_000_000_000;
const YEAR = 31_536_000_000;
const [FIXED, SLIDING, LOG, BUCKET, LEAKY, SLOTS, CALENDAR] = [0, 1, 2, 3, 4, 5, 8];

/** Numbers that look random, and are the same each time. */
class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0 to 1, with 53 bits. */
  unit() {
    return (this.#bits() * 2 ** 21 + (this.#bits() >>> 11)) / 2 ** 53;
  }

  /** From 0 to before `end`. */
  below(end) {
    return Math.floor(this.unit() * end);
  }

  from(least, most) {
    return least + this.below(most - least + 1);
  }

  chance(part) {
    return this.unit() < part;
  }

  pick(...choices) {
    return choices[this.below(choices.length)];
  }

  /** Of any size from 1 to `most`, and often near a power of two. */
  size(most) {
    const size = Math.floor(2 ** (this.unit() * Math.log2(most + 1)));
    const near = this.chance(0.2) ? 2 ** Math.floor(Math.log2(size)) + this.from(-1, 1) : size;
    return Math.min(Math.max(near, 1), most);
  }

  /** Mulberry32. */
  #bits() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let bits = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return (bits ^ (bits >>> 14)) >>> 0;
  }
}

/** Plays worlds until they have taken so many steps. `play` plays one, and returns how many. */
function playWorlds(play) {
  let steps = 0;
  for (let world = 0; steps < STEPS; world++) {
    try {
      steps += play(new Random(SEED * 1_000_003 + world));
    } catch (error) {
      const what = `seed ${SEED}, world ${world}: ${error?.message ?? error}`;
      throw new Error(what, { cause: error });
    }
  }
}

/** A quota, as the options give it. The spans of `sizes` are at most `longest`. */
function quotaOf(random, nth, algorithm, longest, kinds) {
  const sizes = random.pick(...kinds);
  const least = { small: 20, common: 1_000, "2^31": 1_000, "2^51": 1, any: 1 }[sizes];
  const most = { small: 3_000, common: 86_400_000, "2^31": 86_400_000, "2^51": longest, any: longest }[sizes];
  const span = Math.min(Math.max(random.size(most), least), longest);
  const room = algorithm === BUCKET || algorithm === LEAKY || random.chance(0.7) ? Math.floor(MAX_UNITS / span) : MAX_UNITS;
  const remembers = algorithm === LOG || algorithm === SLOTS;
  const amounts = { small: random.from(1, 40), common: random.size(5_000), "2^31": 2 ** 31 + random.from(-2, 2) };
  const amount = amounts[sizes] ?? (sizes === "2^51" ? room - random.below(3) : random.size(room));
  if (algorithm === CALENDAR) {
    const amount = Math.min(Math.max(amounts[sizes] ?? random.size(MAX_UNITS), 1), MAX_UNITS);
    return { ...calendarQuota((end) => random.below(end), random.pick(START, START + random.size(YEAR), MAX_INSTANT - random.size(2 * YEAR)), amount), place: "", name: `q${nth}`, by: undefined };
  }
  const refill = algorithm === BUCKET || algorithm === LEAKY ? random.size(sizes === "small" ? 30 : MAX_UNITS) : 0;
  return {
    ...{ algorithm, place: "", name: `q${nth}`, by: undefined },
    ...{ amount: Math.min(Math.max(amount, 1), room, remembers ? 1_000 : Infinity), span, refill },
  };
}

/** A policy that can be lent, or sometimes another. */
function policyOf(random, longest, lendable = true, kinds = ["small", "small", "common", "2^31", "2^51", "any"]) {
  const some = lendable ? [FIXED, SLIDING, BUCKET, CALENDAR] : [FIXED, SLIDING, LOG, BUCKET, LEAKY, SLOTS, CALENDAR];
  const count = random.pick(1, 1, 1, 2, 2, 3);
  const quotas = Array.from({ length: count }, (_, nth) => quotaOf(random, nth, random.pick(...some), longest, kinds));
  const by = !lendable && count > 1 && random.chance(0.3) ? "peer" : undefined;
  quotas.at(-1).by = by;
  return madeOf(quotas, !lendable && random.chance(0.3));
}

/** A policy by so many in a window. */
function fixedOf(amount, span = 60_000) {
  return madeOf([{ algorithm: FIXED, place: "", name: "q", by: undefined, amount, span, refill: 0 }]);
}

function madeOf(quotas, chargeDenied = false) {
  const ready = { name: "api", quotas, chargeDenied, groupBy: undefined, scopes: undefined, groupAt: -1, placeByKey: false };
  return { ready, policy: new Policy(ready, anyRule) };
}

/** A cost that is mostly 1, and sometimes a part of the limit or more than it. */
function costOf(random, policy) {
  const limit = Math.min(...policy.quotas.map(({ rule }) => rule.limit));
  const part = Math.ceil(limit / random.from(2, 50));
  return random.pick(1, 1, 1, 1, 1, 1, 0, random.below(9), random.size(limit), part, random.chance(0.1) ? limit + 1 : 1);
}

// The WebAssembly, see `src/shared.rs`.

/** What passes between JavaScript and the WebAssembly. */
class Bridge {
  constructor(glue) {
    this.glue = glue;
  }

  write(text) {
    const bytes = new TextEncoder().encode(text);
    const at = this.glue.bytesAt(bytes.length);
    new Uint8Array(this.glue.memory().buffer).set(bytes, at);
    return bytes.length;
  }

  push(text) {
    this.glue.push(text === undefined ? -1 : this.write(String(text)));
  }

  text(returned) {
    const length = returned < 0 ? -1 - returned : returned;
    const at = this.glue.leftAt();
    const text = new TextDecoder().decode(new Uint8Array(this.glue.memory().buffer).slice(at, at + length));
    if (returned >= 0) return text;
    throw text.split("\n");
  }

  numbers(quotas) {
    return [...new Float64Array(this.glue.memory().buffer, this.glue.numbersAt(), 8 + 3 * quotas)];
  }

  get extra() {
    return new Float64Array(this.glue.memory().buffer, this.glue.numbersAt(), 33)[32];
  }
}

/** What a function returns, or the kind of the error that it throws. */
function tried(run) {
  try {
    return run();
  } catch (thrown) {
    if (Array.isArray(thrown)) return { error: thrown[0] };
    throw thrown;
  }
}

// The first part: the lender, in a Durable Object.

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const long = (numbers) => {
  const bytes = Buffer.alloc(8 * numbers.length);
  numbers.forEach((number, nth) => bytes.writeBigUInt64LE(BigInt(number), 8 * nth));
  return bytes;
};
const fromLong = (bytes) => Array.from({ length: bytes.length / 8 }, (_, nth) => Number(bytes.readBigUInt64LE(8 * nth)));
const [CHECK, PEEK, REFUND, DELETE, LEND] = [1, 2, 3, 4, 5];
const NUMBERS = { fw: 1, sw: 2, sl: 3, tb: 4, lb: 5, cc: 6, cw: 8 };

/** A call of an object, as `wire.rs` writes it. */
function callOf({ quotas, dimensions, chargeDenied }, row, action, now, cost, more, version = 4) {
  const placeOf = (nth) => dimensions.findIndex(({ end }) => nth < end);
  const kindOf = (rule, nth) => Buffer.from([(placeOf(nth) << 4) | NUMBERS[rule.code]]);
  const given = quotas.flatMap(({ rule }, nth) => [kindOf(rule, nth), long([rule.amount, rule.unit, rule.last])]);
  const rows = dimensions.map((_, nth) => [Buffer.from([row.length + 1, 0]), Buffer.from(row + nth)]).flat();
  return hex(Buffer.concat([Buffer.from([version, action, Number(chargeDenied), quotas.length]), ...given, ...rows, long([cost, now, 1, ...more])]));
}

/** The states as `codec.rs` of the core writes them: none that grow. */
const fieldsOf = { fw: ["start", "used"], sw: ["start", "previous", "current"], tb: ["level", "at"], cw: ["end", "used", "carried"] };
function encoded({ quotas }, states) {
  const parts = quotas.map(({ rule: { code } }, nth) => [Buffer.from([16 | NUMBERS[code]]), long(fieldsOf[code].map((field) => states[nth][field]))]);
  return hex(Buffer.concat(parts.flat()));
}
function decoded({ quotas }, text) {
  const bytes = Buffer.from(text, "hex");
  let at = 0;
  return quotas.map(({ rule: { code } }) => {
    const fields = fieldsOf[code];
    const numbers = fromLong(bytes.subarray(at + 1, at + 1 + 8 * fields.length));
    at += 1 + 8 * fields.length;
    return Object.fromEntries(fields.map((field, nth) => [field, numbers[nth]]));
  });
}

/** An answer of an object: the decision, the loan and for how long a denial may be repeated. */
function replyOf(text, quotas) {
  if (!/^[\da-f]+$/.test(text)) return { error: /^\d+ (\w+):/.exec(text)[1] };
  const bytes = Buffer.from(text, "hex");
  let at = 2;
  const next = () => Number(bytes.readBigUInt64LE((at += 8) - 8));
  const granted = bytes[1] & 1 ? { number: next(), units: next(), lasts: next() } : undefined;
  const deniesFor = bytes[1] & 2 ? next() : 0;
  const flags = bytes[at++];
  const small = () => {
    let [value, shift] = [0n, 0n];
    for (;;) {
      const byte = BigInt(bytes[at++]);
      value |= (byte & 127n) << shift;
      shift += 7n;
      if (byte < 128n) return Number(value);
    }
  };
  const [binding, decidedAt, delay] = [small(), small(), small()];
  const wait = flags & 8 ? small() : UNKNOWN;
  const decision = [flags & 3, binding, wait, delay, decidedAt, 0, Number((flags & 4) !== 0), 0];
  for (let nth = 0; nth < quotas; nth++) decision.push(small(), small() - 1, small() - 1);
  return { decision, granted, deniesFor };
}

/** Waits past 2^53 ms, which only loans of more than there is cause, are sums of up to 65 waits. The core's are exact, and shown as doubles. */
function rounded(reply) {
  if (reply.decision?.[WAIT] > 2 ** 53) reply.decision[WAIT] = Infinity;
  return reply;
}

/** What an object does with a call, and with its row: undefined, or what is stored. */
function applied(policy, row, { action, now, cost, question, chargedAt }) {
  if (action === DELETE) {
    const reply = { decision: peek(policy, unused(policy), now, 0), granted: undefined, deniesFor: 0 };
    const kept = tried(() => {
      if (!row?.leased.length) return undefined;
      const states = decoded(policy, row.value);
      verify(policy, states, MAX_INSTANT);
      const lender = Lender.fromNumbers(row.leased);
      return lender.reset(policy, states) ? { ...row, value: encoded(policy, states), leased: lender.numbers } : undefined;
    });
    return { reply, row: kept?.error ? undefined : kept };
  }
  const states = row ? decoded(policy, row.value) : unused(policy);
  if (row) verify(policy, states, now);
  const lender = Lender.fromNumbers(row?.leased ?? []);
  lender.settle(policy, states, now);
  const settled = copied(policy.quotas, states);
  let reply = { granted: undefined, deniesFor: 0 };
  if (action === LEND) reply = lender.decide(policy, states, now, cost, question);
  else if (action === CHECK) reply.decision = lender.corrected(policy, states, now, cost, decide(policy, states, now, cost));
  else if (action === PEEK) reply.decision = lender.corrected(policy, states, now, cost, peek(policy, states, now, cost));
  else {
    refund(policy, states, chargedAt, now, cost);
    reply.decision = peek(policy, states, now, 0);
  }
  const unusedAfter = expiresAfter(policy, states, now);
  const isSame = !lender.changed && JSON.stringify(settled) === JSON.stringify(states);
  if (action === PEEK || isSame || (!row && unusedAfter === 0)) return { reply, row };
  const ttl = Math.max(unusedAfter + since(lender.lastEnd, now), 1);
  return { reply, row: { value: encoded(policy, states), leased: lender.numbers, expires: later(now, ttl) } };
}

/** A state of any kind, from a part of a window or bucket to far more than it holds. */
function stateOf(random, { rule }, now) {
  const { code, unit, amount } = rule;
  const units = () => random.pick(0, random.size(amount), amount - random.below(Math.min(amount, 3)), random.size(MAX_UNITS));
  const at = Math.max(random.pick(now, now - random.size(unit), now - random.size(100_000), now + random.size(100_000), random.below(now)), 0);
  const start = Math.min(at, MAX_INSTANT) - (Math.min(at, MAX_INSTANT) % unit);
  if (code === "cw") {
    const end = random.pick(0, rule.startOf(now), rule.startOf(rule.startOf(now) + rule.window * random.below(3)), now + 1, at);
    return { end: Math.min(end, MAX_INSTANT), used: units(), carried: random.pick(0, rule.carryOver, random.below(rule.carryOver + 1), random.size(2 ** 32)) };
  }
  if (code === "fw") return { start, used: units() };
  if (code === "sw") return { start, previous: units(), current: units() };
  const level = random.pick(0, amount * unit, Math.floor(random.unit() * amount * unit), random.size(MAX_UNITS));
  return { level, at: Math.min(at, MAX_INSTANT) };
}

/** The numbers of any lender. Some are no lender's. */
function loansOf(random, { quotas }, now) {
  if (random.chance(0.1)) return [];
  const count = random.pick(0, 1, 1, 2, 3, random.below(65), 64, random.chance(0.05) ? 65 : 2);
  // A refund of 2^64 units of a bucket's level or more is not the same: the core's arithmetic saturates there.
  const bound = Math.min(...quotas.map(({ rule: { code, unit } }) => (code === "tb" ? 2 ** 63 / unit : MAX_UNITS)), MAX_UNITS) / (count + 1);
  const most = Math.max(1, Math.floor(Math.min(random.pick(MAX_UNITS, 2 ** 32, quotas[0].rule.limit / (count + 1), 100), bound)));
  const last = random.pick(now * 16, now * 16 + random.below(40), random.size(2 ** 53 - 1_000));
  const signs = random.pick([1, -1], [1, -1], [1]);
  const away = () => random.pick(...signs) * random.size(random.pick(200, 70_000, 200_000, YEAR));
  const ends = Array.from({ length: count }, () => Math.min(Math.max(0, now + away()), MAX_INSTANT));
  const numbers = [last, random.pick(16, 16 * (count + 1), random.below(1_041), random.chance(0.05) ? 1_041 : 1_040)];
  ends.sort((one, other) => one - other).forEach((end) => {
    const number = random.pick(Math.max(0, end - random.size(60_000)) * 16, last, random.below(last) + 1);
    numbers.push(Math.min(Math.max(number, 1), last), random.pick(random.size(most), random.below(5)), end);
  });
  if (random.chance(0.03)) numbers.splice(random.below(numbers.length), 1);
  if (random.chance(0.03)) numbers[random.below(numbers.length)] = random.pick(0, last + 1, 2 ** 52, MAX_INSTANT + 1);
  return numbers;
}

/** A question of any kind, or such as a borrower asks: of large loans, or of the last units. */
function questionOf(random, numbers, kind) {
  const place = numbers.length > 4 ? 2 + 3 * random.below((numbers.length - 2) / 3) : undefined;
  const units = numbers[place + 1] ?? 9;
  const most = { any: 2 ** 53 - 1, large: 2 ** 34, last: Math.max(units, 1) }[kind];
  const part = () => random.pick(0, 1, random.below(20), random.size(most));
  const ranges = {
    any: [random.pick(0, random.below(40), random.size(2 ** 20), random.size(most)), random.pick(0, random.size(2 ** 20), random.size(most))],
    large: [2 ** 32 + random.from(-3, 2 ** 20), random.size(60_000)],
    last: [random.below(random.pick(3, 40, 400)), random.size(random.pick(2_000, 60_000))],
  };
  const [wanted, within] = ranges[kind];
  const lifetime = random.pick(60_000, random.size(60_000), kind === "any" ? random.size(most) : 10_000, kind === "any" ? 0 : 5_000);
  const loan = place !== undefined && random.chance(0.9) ? numbers[place] : random.size(2 ** 53 - 1);
  const back = random.pick({ unspent: part(), kept: part() }, { unspent: 0, kept: units }, { unspent: random.below(units + 1), kept: 0 });
  const owed = random.chance(0.7) ? 0 : random.pick(1, random.below(20), random.size(most));
  return { wanted, within, owed, lifetime, back: random.chance(0.6) ? { loan, ...back } : undefined };
}

describe("the lender", async () => {
  const bridge = new Bridge(await started("object"));
  const stored = new Map();
  const rows = {
    load: (key) => stored.get(key),
    save(lines) {
      const [key, row] = lines.split("\n");
      stored.set(key, row);
    },
    remove: (key) => stored.delete(key),
    sweep: () => "0  ",
    setAlarm() {},
  };
  const textOf = ({ value, leased, expires }) => `${expires.toString(16).padStart(12, "0")}${hex(long(leased))}.${value}`;
  let names = 0;

  /** A story of one row, which begins with any state, and goes on from what the calls make of it. */
  function play(random, longest, latest) {
    stored.clear();
    const counter = new bridge.glue.ObjectCounter(rows, undefined);
    const kind = random.pick("any", "any", "large", "last", "last");
    const sizes = { any: undefined, large: ["2^51", "any"], last: ["small", "common"] }[kind];
    const { ready } = policyOf(random, kind === "large" ? 2 ** 18 : longest, true, sizes);
    const { policy } = madeOf(ready.quotas, random.chance(0.03));
    let now = latest ? MAX_INSTANT - random.size(2 * YEAR) : START + random.size(YEAR);
    let name = `r${++names}.`;
    let row;
    const steps = random.size(60);
    for (let step = 0; step < steps; step++) {
      if (random.chance(kind === "any" ? (step === 0 ? 0.7 : 0.05) : 0.1)) {
        name = `r${++names}.`;
        const states = policy.quotas.map((quota) => stateOf(random, quota, now));
        row = { value: encoded(policy, states), leased: loansOf(random, policy, now), expires: now };
        stored.set(`${name}0`, textOf(row));
      }
      const far = random.chance(0.1) ? random.size(longest) : 1;
      now = Math.min(now + random.pick(0, 0, 1, random.below(50), random.below(3_000), random.below(70_000), -random.below(5_000), far), MAX_INSTANT);
      const call = {
        action: random.pick(LEND, LEND, LEND, LEND, LEND, LEND, CHECK, PEEK, REFUND, random.chance(0.5) ? DELETE : LEND),
        now,
        cost: costOf(random, policy),
        question: questionOf(random, row?.leased ?? [], kind),
        chargedAt: Math.max(now - random.size(100_000), 0),
      };
      const { back, ...asked } = call.question;
      const lends = () => [asked.wanted, asked.within, asked.wanted, asked.lifetime, ...(asked.owed > 0 ? [asked.owed] : []), ...(back ? [back.loan, back.unspent, back.kept] : [])];
      const more = call.action === LEND ? lends() : call.action === REFUND ? [call.chargedAt] : [];
      const before = row && { ...row };
      const length = bridge.write(callOf(policy, name, call.action, now, call.cost, more, call.action === LEND && asked.owed > 0 ? 5 : 4));
      const got = replyOf(bridge.text(counter.answer(length, now)), policy.quotas.length);
      const mine = tried(() => applied(policy, row, call));
      const shown = () => JSON.stringify({ step, policy: policy.quotas, before, state: before && decoded(policy, before.value), call });
      assert.deepEqual(mine.error ? mine : rounded(mine.reply), rounded(got), shown());
      if (!mine.error) row = mine.row;
      assert.equal(row && textOf(row), stored.get(`${name}0`), shown());
    }
    counter.free();
    return steps;
  }

  test("answers any question about any state and any loans, and leaves the same row", () => {
    playWorlds((random) => play(random, 2 ** 40, false));
  });

  test("does so until the last instant", () => {
    playWorlds((random) => play(random, 2 ** 47, true));
  });

  test("reads all numbers that the core reads, and says the same of others", () => {
    const of = (...numbers) => tried(() => Lender.fromNumbers(numbers).numbers);
    const loan = [16, 1, 1_000];
    for (const right of [[], [1, 0], [16, 1_040, ...loan], [16, 16, ...loan, ...loan], [2 ** 53 - 1, 16, 1, MAX_UNITS, MAX_INSTANT]]) {
      assert.deepEqual(of(...right), right);
    }
    for (const wrong of [
      ...[[0, 16], [1], [1, 16, 1], [1, 16, 1, 1], [16, 1_041], [15, 16, ...loan], [16, 16, 0, 1, 1], [2 ** 53, 16]],
      ...[[16, 16, 1, MAX_UNITS + 1, 1], [16, 16, 1, MAX_UNITS, 1, 2, 1, 1], [16, 16, 1, 1, 2, 2, 1, 1], [16, 16, 1, 1, MAX_INSTANT + 1]],
      [16, 16, ...Array(65).fill(loan).flat()],
    ]) {
      assert.deepEqual(of(...wrong), { error: "corrupt" }, JSON.stringify(wrong));
    }
    assert.throws(() => Lender.fromNumbers([1]), (thrown) => thrown[1] === "stored loans: 1 numbers are not those of loans; delete the key");
  });
});

// The second part: the borrowers, and what they read of a server with the scripts.

const [ASK_CHECK, ASK_PEEK, ASK_RESET] = [0, 1, 5];
const [LENDING, QUESTION] = [2, 4];

/** What an isolate knows: by the WebAssembly, and by the package. */
class Isolate {
  constructor(bridge, { ready, policy }, terms, isTimeless) {
    this.bridge = bridge;
    this.policy = policy;
    this.borrowers = new Borrowers(terms);
    const { quotas } = ready;
    const options = ["direct", 64, 0, 0, ready.name, Number(ready.chargeDenied), ready.groupBy, undefined, undefined, 0, quotas.length];
    const own = [0, Number(isTimeless), 0, terms.slice, terms.lifetime, terms.deadline, terms.grace];
    const given = quotas.flatMap(({ name, by, algorithm, place, amount, span, refill }) => [name, by, algorithm, place, amount, span, refill]);
    for (const text of [...options, ...given, ...own]) bridge.push(text);
    this.limit = bridge.glue.Limit.make();
    if (!this.limit) bridge.text(-1 - bridge.extra);
  }

  get numbers() {
    return this.bridge.numbers(this.policy.quotas.length);
  }

  /** Asks both. Returns the call that is to be made, if there is one. */
  ask(key, cost, now) {
    const { bridge, policy, borrowers } = this;
    const length = bridge.write(key);
    const verdict = canBorrow(policy, cost, undefined) ? (borrowers.answer(key, policy, cost, now) ?? borrowers.decide(key, policy, cost, now, key)) : { kind: "plain" };
    const left = this.limit.ask(ASK_CHECK, length, cost, now, 0, false);
    const [call, words] = left === 0 ? [0, ""] : [bridge.extra, bridge.text(left)];
    const got = { numbers: left === 0 || call < 0 ? this.numbers : undefined, asked: Math.abs(call) >= QUESTION ? words.split("\n")[2] : undefined };
    const asked = verdict.then ?? verdict.asked;
    const decision =
      verdict.kind === "admit"
        ? withoutCounts(policy, ALLOWED, 0, UNKNOWN, now, FROM_LEASE)
        : verdict.kind === "deny"
          ? withoutCounts(policy, DENIED, verdict.binding, verdict.retryAfter, now, FROM_DENY_CACHE)
          : undefined;
    assert.deepEqual({ numbers: decision, asked: asked && wordOf(asked.question) }, got, verdict.kind);
    if (left > 0) assert.equal(Math.abs(call) % QUESTION, LENDING);
    if (asked) assert.equal(borrowers.isWaiting(key, asked.nth), true);
    return left === 0 ? undefined : { kind: ASK_CHECK, key, cost: call < 0 ? 0 : cost, now, call: Math.abs(call), asked };
  }

  /** What idle keys return. The order of the keys is not the same. */
  due(now) {
    const [{ bridge }, got, mine] = [this, new Map(), new Map()];
    for (let left = this.limit.due(now); left !== 0; left = this.limit.due(now)) {
      const [call, [key, , , word]] = [bridge.extra, bridge.text(left).split("\n")];
      got.set(key, { word, call });
    }
    for (let due = this.borrowers.due(now); due; due = this.borrowers.due(now)) {
      assert.equal(due.key, due.beside);
      mine.set(due.key, due.asked);
    }
    const words = (all, wordOf) => Object.fromEntries([...all].map(([key, one]) => [key, wordOf(one)]).sort());
    assert.deepEqual(words(mine, ({ question }) => wordOf(question)), words(got, ({ word }) => word));
    const order = (numbers) => numbers.sort((one, other) => one - other);
    assert.deepEqual(order([...mine.values()].map(({ nth }) => nth)), order([...got.values()].map(({ call }) => (call - LENDING) / QUESTION)));
    return [...mine].map(([key, asked]) => ({ kind: ASK_CHECK, key, cost: 0, now, call: got.get(key).call, asked }));
  }

  /** Asks for the counts. */
  peek(key, cost, now) {
    assert.ok(this.limit.ask(ASK_PEEK, this.bridge.write(key), cost, now, 0, false) > 0);
    assert.equal(this.bridge.extra, LENDING);
    return { kind: ASK_PEEK, key, cost, now, call: LENDING, asked: undefined };
  }

  /** Has both read an answer: `text` is the server's, and `answer` what it means. */
  read({ kind, key, cost, now, call, asked }, text, answer) {
    const { bridge } = this;
    bridge.push(key);
    const read = this.limit.read(kind, bridge.write(asked ? `${wordOf(asked.question)}\n${text}` : text), cost, now, 0, call);
    if (read !== 0) assert.fail(`${bridge.text(read)} for ${text}`);
    assert.deepEqual(answer.decision, this.numbers, text);
    if (asked) this.borrowers.answered(key, asked.nth, answer);
  }

  /** Tells both that a call has ended, or, if it is a reset, that a denial is to be forgotten. */
  ended({ key, call, asked }, kind = ASK_CHECK) {
    this.bridge.push(key);
    this.limit.ended(kind, call);
    if (asked) {
      this.borrowers.answered(key, asked.nth, undefined);
      assert.equal(this.borrowers.isWaiting(key, asked.nth), false);
    }
    if (kind === ASK_RESET) this.borrowers.forgetDenial(key);
  }
}

/** A question, as a word of the script. */
function wordOf({ wanted, within, owed, lifetime, back }) {
  return [wanted, within, owed, lifetime, ...(back ? [back.loan, back.unspent, back.kept] : [])].join(" ");
}

/** The states of keys at a server, as text, and what lend.lua does with them. */
class Server {
  rows = new Map();

  constructor(policy) {
    this.policy = policy;
  }

  /** Answers a call: with a text, and what it means. `tells` is whether the text has the time. */
  answer({ key, cost, now, asked, kind }, tells) {
    const { policy } = this;
    const before = this.rows.get(key) ?? "";
    const { states, lender } = this.settled(key, now);
    const settled = copied(policy.quotas, states);
    const plain = () => lender.corrected(policy, states, now, cost, (kind === ASK_PEEK ? peek : decide)(policy, states, now, cost));
    const answer = asked ? lender.decide(policy, states, now, cost, asked.question) : { decision: plain(), granted: undefined };
    if (kind !== ASK_PEEK && (lender.changed || JSON.stringify(states) !== JSON.stringify(settled))) this.write(key, states, lender);
    const { granted, decision } = answer;
    const loan = granted ? `${granted.number}:${granted.units}:${later(now, granted.lasts)}` : "";
    const text = `${decision[STATUS] === ALLOWED ? "a" : "d"}${tells ? `@${now} ${cost} ` : ""}${before}${asked ? `>${loan}` : ""}`;
    return { text, answer };
  }

  settled(key, now) {
    const found = this.read(key);
    verify(this.policy, found.states, now);
    found.lender.settle(this.policy, found.states, now);
    return found;
  }

  read(key) {
    const parts = (this.rows.get(key) ?? "").split(";").slice(0, -1).map((part) => part.split(/[ :]/).slice(1).map(Number));
    const stateOf = ({ rule: { code } }, nth) => Object.fromEntries(fieldsOf[code].map((field, place) => [field, parts[nth][place]]));
    const states = parts.length === 0 ? unused(this.policy) : this.policy.quotas.map(stateOf);
    return { states, lender: Lender.fromNumbers(parts[this.policy.quotas.length] ?? []) };
  }

  write(key, states, lender) {
    const parts = this.policy.quotas.map(({ rule: { code } }, nth) => `${code}1 ${fieldsOf[code].map((field) => states[nth][field]).join(" ")};`);
    const [last, borrowers, ...loans] = lender.numbers;
    const texts = loans.flatMap((number, nth) => (nth % 3 === 0 ? [` ${number}:${loans[nth + 1]}:${loans[nth + 2]}`] : []));
    this.rows.set(key, parts.join("") + (last === undefined ? "" : `ln1 ${last} ${borrowers}${texts.join("")};`));
  }

  /** What others do: settle a charge to any cost. */
  disturb(random, key, now) {
    const { states, lender } = this.settled(key, now);
    const [at, cost] = [Math.max(now - random.size(5_000), 0), random.size(random.pick(3, 1_000))];
    settle(this.policy, states, { id: "", at, cost }, now, random.below(random.pick(3, 2_000)));
    this.write(key, states, lender);
  }

  reset(key) {
    const { states, lender } = this.read(key);
    if (!lender.isUnused && lender.reset(this.policy, states)) this.write(key, states, lender);
    else this.rows.delete(key);
  }
}

/** Isolates whose clocks are wrong, and a server, with a network between them that delays, loses and repeats. */
class World {
  #random;
  #bridge;
  #made;
  #latest;
  #terms;
  #tells;
  #server;
  #isolates;
  #ahead;
  #keys;
  #cost;
  #isCalm;
  #now = START;
  #events = [];
  #network = { out: 0, back: 0, loses: 0, repeats: 0, ends: 1 };
  steps = 0;

  constructor(random, bridge) {
    this.#random = random;
    this.#bridge = bridge;
    this.#isCalm = random.chance(0.75);
    // The core refuses to decide after the windows that a policy knows, and the package finds further ones.
    do {
      this.#made = policyOf(random, 2 ** 42, true, this.#isCalm ? ["common", "common", "2^31", "2^51"] : undefined);
      this.#latest = Math.min(latestKnown(this.#made.ready.quotas), MAX_INSTANT);
    } while (this.#latest < START + 3 * YEAR);
    const slice = random.pick(1, random.size(50), random.size(1_000_000), random.size(1_000_000));
    const lifetime = random.pick(1_000, 60_000, random.from(1_000, 60_000));
    const grace = random.pick(0, 1, random.size(5), random.size(slice), random.size(1_000_000));
    this.#terms = { slice, lifetime, deadline: random.pick(200, 2_000, random.from(1, 5_000), random.from(1, 30_000)), grace };
    this.#tells = random.chance(0.5);
    this.#server = new Server(this.#made.policy);
    this.#isolates = Array.from({ length: random.from(1, 3) }, () => this.#isolate());
    this.#ahead = this.#isolates.map(() => random.pick(0, 0, random.from(-100_000, 100_000)));
    this.#keys = Array.from({ length: random.pick(1, 2, 4) }, (_, nth) => `sub:${nth}`);
    this.#now += random.size(YEAR);
    // Most requests cost the same, and much less than the limit.
    const limit = Math.min(...this.#made.policy.quotas.map(({ rule }) => rule.limit));
    this.#cost = random.pick(1, 1, 1, random.from(1, 9), random.size(Math.ceil(limit / 100)));
  }

  get shown() {
    return JSON.stringify({ policy: this.#made.ready.quotas, terms: this.#terms, tells: this.#tells, now: this.#now });
  }

  play() {
    const random = this.#random;
    for (let left = random.from(20, this.#isCalm ? 600 : 300); left > 0; left--) {
      const [at, key] = [random.below(this.#isolates.length), random.pick(...this.#keys)];
      // In a calm world, requests come one by one, little is lost, and few act otherwise.
      const act = this.#isCalm && random.chance(0.9) ? random.from(36, 66) : random.below(100);
      if (act < 50) this.#ask(at, key, act < 48 ? this.#cost : this.#anyCost(), random.pick(1, 1, 2, random.from(1, 30)));
      else if (this.#isCalm && act < 64) this.#forward(random.pick(random.below(20), random.below(100), this.#partOfLife(50)));
      else if (act < 66) this.#forwardExactly();
      else if (act < 80) this.#forward(random.pick(random.below(20), random.below(400), random.below(4_000), this.#partOfLife(0.3)));
      else if (act < 84) this.#due(at);
      else if (act < 87) this.#changeNetwork();
      else if (act < 89) this.#setClock(at);
      else if (act < 91) this.#server.disturb(random, key, this.#now);
      else if (act < 93) this.#reset(this.#isolates[at], key);
      else if (act < 94) this.#server.rows.delete(key);
      else if (act < 95) this.#replace(at);
      else if (act < 97) this.#peek(at, key, this.#anyCost());
      else this.#plain(key, this.#anyCost());
      this.#forward(0);
    }
    for (const { limit } of this.#isolates) limit.free();
  }

  #anyCost() {
    return costOf(this.#random, this.#made.policy);
  }

  /** Up to a lifetime, divided by at most so much. */
  #partOfLife(most) {
    return this.#random.below(this.#terms.lifetime / this.#random.pick(most, Math.sqrt(most)));
  }

  #changeNetwork() {
    const random = this.#random;
    const out = random.pick(0, 0, 0, random.below(50), random.below(900), random.below(4_000));
    const back = random.pick(0, 0, random.below(50), random.below(3_000));
    this.#network = { out, back, loses: random.pick(0, 0, 0, 0.2), repeats: random.pick(0, 0, 0.2), ends: random.pick(1, 1, 0.5) };
  }

  #setClock(at) {
    const random = this.#random;
    // A server that goes by that clock refuses what has been written then.
    if (this.#tells && random.chance(0.1)) {
      this.#ahead[at] = MAX_INSTANT - this.#now - random.pick(-1, 0, 1, random.below(20_000));
      return;
    }
    const by = random.pick(random.from(-30, 30), -random.below(5_000), random.below(5_000), random.from(-90_000, 90_000), YEAR, -YEAR);
    this.#ahead[at] = Math.min(Math.max(this.#ahead[at] + by, -YEAR), YEAR);
  }

  #isolate() {
    return new Isolate(this.#bridge, this.#made, this.#terms, this.#tells);
  }

  /** The server's answer to a call: whose clock decides is an option. */
  #answers(call) {
    const { text, answer } = this.#server.answer(this.#tells ? { ...call, now: this.#now } : call, this.#tells);
    return [text, answer];
  }

  /** What an isolate's clock tells. */
  #told(at) {
    return Math.min(this.#now + this.#ahead[at], this.#latest);
  }

  #due(at) {
    for (const call of this.#isolates[at].due(this.#told(at))) this.#send(this.#isolates[at], call);
  }

  #peek(at, key, cost) {
    const isolate = this.#isolates[at];
    const call = isolate.peek(key, cost, this.#told(at));
    isolate.read(call, ...this.#answers(call));
  }

  #ask(at, key, cost, times) {
    const isolate = this.#isolates[at];
    for (let nth = 0; nth < times; nth++) {
      this.steps += 1;
      // Readings of one clock come in any order.
      const told = this.#told(at) - this.#random.pick(0, 0, 0, this.#random.below(25));
      const call = isolate.ask(key, this.#random.chance(0.03) ? 0 : cost, told);
      if (call) this.#send(isolate, call);
      if (this.#random.chance(0.3)) this.#due(at);
      this.#forward(this.#random.chance(0.2) ? this.#random.below(5) : 0);
    }
  }

  /** One who does not borrow. */
  #plain(key, cost) {
    this.#server.answer({ key, cost, now: this.#now, kind: ASK_CHECK }, false);
  }

  #send(isolate, call) {
    const random = this.#random;
    const { out, back, loses, repeats, ends } = this.#network;
    const arrives = (isFirst) => () => {
      const [text, answer] = this.#answers(call);
      if (!isFirst || random.chance(loses)) return;
      this.#at(random.chance(0.9) ? back : 10 * back, () => {
        if (isolate.isDead) return;
        isolate.read(call, text, answer);
        // As if it had no answer: then no key gets a grace until the next one.
        if (random.chance(0.1 * ends)) isolate.ended(call);
      });
    };
    if (!random.chance(loses)) this.#at(out, arrives(true));
    if (random.chance(repeats)) this.#at(out + random.below(3_000), arrives(false));
    // Its deadline may pass before the answer comes, or it is cancelled, and nobody notes its end.
    if (loses > 0 && random.chance(ends)) this.#at(this.#terms.deadline, () => isolate.isDead || isolate.ended(call));
  }

  #at(delay, run) {
    this.#events.push({ at: this.#now + delay, run });
  }

  /** Lets as much time pass as something takes, or a millisecond less. */
  #forwardExactly() {
    const { lifetime, deadline } = this.#terms;
    const random = this.#random;
    const span = random.pick(500, 1_000, 2_000, 2_000, random.from(1_500, 3_000), lifetime, Math.ceil(lifetime / 2), deadline);
    this.#forward(span - random.pick(0, 0, 1));
    if (random.chance(0.8)) this.#isolates.forEach((_, at) => this.#due(at));
  }

  /** Lets time pass, and what comes meanwhile happen. */
  #forward(ms) {
    const until = this.#now + ms;
    for (;;) {
      const next = this.#events.reduce((first, event) => (event.at <= until && event.at < (first?.at ?? Infinity) ? event : first), undefined);
      if (!next) break;
      this.#events.splice(this.#events.indexOf(next), 1);
      this.#now = Math.max(this.#now, next.at);
      next.run();
    }
    this.#now = until;
  }

  #reset(isolate, key) {
    if (this.#random.chance(0.5)) this.#server.reset(key);
    if (this.#random.chance(0.8)) isolate.ended({ key, call: LENDING }, ASK_RESET);
  }

  /** An isolate dies with what it holds. */
  #replace(at) {
    const gone = this.#isolates[at];
    gone.isDead = true;
    gone.limit.free();
    this.#isolates[at] = this.#isolate();
  }
}

describe("the borrowers", async () => {
  const bridge = new Bridge(await started("redis"));

  test("spend, ask, repeat denials and return as the core's do, and read the same of what is lent", () => {
    playWorlds((random) => {
      const world = new World(random, bridge);
      try {
        world.play();
      } catch (error) {
        throw new Error(`${error?.message ?? error}; ${world.shown}`, { cause: error });
      }
      return world.steps;
    });
  });

  test("forget the keys that are no longer of use", () => {
    for (let nth = 0; nth < STEPS / 1_000; nth++) {
      const random = new Random(SEED * 1_000 + nth);
      // Of short windows, nothing is left to return.
      const made = nth % 2 === 0 ? fixedOf(1_000_000, random.from(500, 3_000)) : policyOf(random, 2 ** 20, true, ["common", "2^31"]);
      const terms = { slice: random.size(100), lifetime: random.from(1_000, 5_000), deadline: random.from(500, 8_000), grace: random.pick(0, 1, 3) };
      const [isolate, server] = [new Isolate(bridge, made, terms, false), new Server(made.policy)];
      let [now, keys] = [START + random.size(YEAR), 0];
      const send = (call) => {
        if (!call || random.chance(0.1)) return;
        const { text, answer } = server.answer(call, false);
        isolate.read(call, text, answer);
      };
      let last = 0;
      for (let round = 0; round < 12; round++) {
        const back = random.chance(0.3) ? random.below(50_000) : 0;
        const { lifetime } = terms;
        now += random.pick(random.below(lifetime), lifetime, lifetime + random.below(1_000), random.below(3 * lifetime), -back);
        // New keys come, and then some of the last ones again.
        const first = keys;
        for (const end = keys + random.from(10, 120); keys < end; keys++) send(isolate.ask(`sub:${keys}`, 1, now));
        for (let left = 50; left > 0; left--) send(isolate.ask(`sub:${random.from(last, keys - 1)}`, 1, now));
        if (random.chance(0.3)) isolate.due(now).forEach(send);
        for (let key = first; key < keys; key++) {
          for (let left = random.below(4); left > 0; left--) {
            send(isolate.ask(`sub:${key}`, random.pick(1, 1, 3), now));
            now += random.below(3);
          }
        }
        last = first;
      }
      isolate.limit.free();
    }
  });

  test("know as many keys as the core's, and look for room as often", () => {
    const isolate = new Isolate(bridge, policyOf(new Random(3), 2 ** 20), { slice: 50, lifetime: 5_000, deadline: 1_000, grace: 0 }, false);
    let plain = 0;
    // There are always more of the last lifetime than there is room for.
    for (let nth = 0; nth < 80_000; nth++) plain += Number(!isolate.ask(`sub:${nth}`, 1, START + Math.floor(nth / 8)).asked);
    assert.ok(plain > 1_000, `${plain}`);
  });

  test("give new keys no grace while they may have forgotten one that should have none", () => {
    const made = fixedOf(1, 86_400_000);
    const [isolate, server] = [new Isolate(bridge, made, { slice: 50, lifetime: 5_000, deadline: 1_000, grace: 1 }, false), new Server(made.policy)];
    const read = (call, { text, answer } = server.answer(call, false)) => isolate.read(call, text, answer);
    const isAsked = (nth, now) => isolate.ask(`sub:${nth}`, 1, now)?.asked !== undefined;
    for (let nth = 0; nth < 32_768; nth++) assert.equal(isAsked(nth, START), false);
    isolate.due(START).forEach((call) => read(call));
    // Each is at its limit. Some are forgotten now, and so none that is new gets a grace.
    for (let nth = 32_768; nth < 32_784; nth++) assert.equal(isAsked(nth, START + 6_000), true);
    assert.equal(isAsked(32_784, START - (START % 86_400_000) + 86_410_000), false);
  });

  test("forget half of what was spent after two lifetimes", () => {
    for (const last of [1_999, 2_000, 2_001, 2_002]) {
      const isolate = new Isolate(bridge, fixedOf(1_000), { slice: 50, lifetime: 1_000, deadline: 1, grace: 0 }, false);
      const asked = [0, 600, 1_200, 1_800, last, last + 400, last + 401].map((at) => isolate.ask("sub:a", 1, START + at).asked.question.wanted);
      // Two thirds of 0 to 4 units, and of 5 or 3.
      assert.deepEqual(asked.slice(0, 5), [0, 1, 2, 2, 3]);
      assert.equal(asked[5], last < 2_000 ? 4 : 2);
    }
  });

  test("are idle from their last request on, and not while an answer is on its way", () => {
    for (const idle of [1, 500, 1_000, 1_500, 1_999, 2_000, 2_001, 4_000]) {
      const made = fixedOf(1_000, 86_400_000);
      const [isolate, server] = [new Isolate(bridge, made, { slice: 50, lifetime: 60_000, deadline: 30_000, grace: 0 }, false), new Server(made.policy)];
      const read = (call, { text, answer } = server.answer(call, false)) => isolate.read(call, text, answer);
      let [now, call] = [START, undefined];
      for (let asked = 0; asked < 100 || !call; asked++) {
        now += 20;
        call = isolate.ask("sub:a", 1, now);
        if (!call || asked >= 100) continue;
        // Requests come meanwhile, so the next question is asked when something is left.
        for (let left = 4; left > 0; left--) isolate.ask("sub:a", 1, now);
        read(call);
      }
      // It is asked in the background. Meanwhile, there is one more request.
      assert.equal(call.cost, 0);
      now += 3_000;
      assert.equal(isolate.ask("sub:a", 1, now), undefined);
      const late = idle % 1_000 === 0;
      if (late) assert.equal(isolate.due(now + idle).length, 0);
      read(call);
      assert.equal(isolate.due(now + idle + (late ? 1_000 : 0)).length, Number(idle + (late ? 1_000 : 0) >= 2_000));
    }
  });

  test("forget a denial that comes after what denied was given back", () => {
    const made = fixedOf(1);
    const [isolate, server] = [new Isolate(bridge, made, { slice: 50, lifetime: 60_000, deadline: 2_000, grace: 0 }, false), new Server(made.policy)];
    const [key, answered] = ["sub:a", (call) => ({ call, ...server.answer(call, false) })];
    for (const isReset of [true, false]) {
      // The first is admitted, and the second one denied.
      const last = [0, 1].map((nth) => {
        const { call, text, answer } = answered(isolate.ask(key, 1, START + nth));
        if (nth === 1 && isReset) isolate.ended({ key, call: LENDING }, ASK_RESET);
        isolate.read(call, text, answer);
        return answer.deniesFor;
      });
      assert.ok(last[1] > 0);
      const next = isolate.ask(key, 1, START + 2);
      assert.equal(next === undefined, !isReset);
      if (next) isolate.ended(next);
      server.rows.delete(key);
      isolate.ended({ key, call: LENDING }, ASK_RESET);
    }
  });

  test("borrow by the same policies", () => {
    const random = new Random(SEED);
    const seen = { true: 0, false: 0 };
    for (let nth = 0; nth < 300; nth++) {
      const made = policyOf(random, 2 ** 20, false);
      const isolate = new Isolate(bridge, made, { slice: 1, lifetime: 1_000, deadline: 1_000, grace: 0 }, false);
      for (const _ of made.policy.dimensions) bridge.push("sub:a");
      assert.ok(isolate.limit.ask(ASK_PEEK, 0, 1, START, 0, false) > 0);
      assert.equal(canLend(made.policy), bridge.extra === LENDING);
      seen[canLend(made.policy)] += 1;
      isolate.limit.free();
    }
    assert.ok(seen.true > 20 && seen.false > 20, JSON.stringify(seen));
    const { policy } = policyOf(new Random(3), 2 ** 20);
    assert.equal(canBorrow(policy, 1, "token"), false);
  });

  test("do not spend what is lent by one policy on checks by another", () => {
    const [pro, free] = [1_000, 10].map((amount) => fixedOf(amount).policy);
    const [states, lender, borrowers] = [unused(pro), new Lender(), new Borrowers({ slice: 50, lifetime: 60_000, deadline: 2_000, grace: 0 })];
    const first = borrowers.decide("row", pro, 1, START, "pro").asked;
    const answer = lender.decide(pro, states, START, 1, { ...first.question, wanted: 50 });
    assert.ok(answer.granted.units > 1);
    assert.equal(borrowers.decide("row", free, 1, START, "free").kind, "plain");
    borrowers.answered("row", first.nth, answer);
    const second = borrowers.decide("row", free, 1, START, "free").asked;
    assert.deepEqual(second.question.back, { loan: answer.granted.number, unspent: answer.granted.units, kept: 0 }, "it is returned");
    // Nor does a denial by the one hold for the other.
    borrowers.answered("row", second.nth, undefined);
    const third = borrowers.decide("row", free, 1, START, "free").asked;
    const full = unused(free);
    decide(free, full, START, 10);
    const denied = new Lender().decide(free, full, START, 1, third.question);
    assert.ok(denied.decision[STATUS] === DENIED && denied.deniesFor > 0);
    assert.equal(borrowers.decide("row", pro, 1, START, "pro").kind, "plain");
    borrowers.answered("row", third.nth, denied);
    assert.equal(borrowers.decide("row", pro, 1, START, "pro").kind, "ask");
    // An equal policy is the same one.
    assert.equal(borrowers.decide("row", fixedOf(1_000).policy, 1, START, "pro").kind, "plain");
  });

  test("return what is lent of the last policy, unless its key is used meanwhile", () => {
    const borrowers = new Borrowers({ slice: 50, lifetime: 60_000, deadline: 2_000, grace: 0 });
    const [before, after] = [10, 1_000].map((amount) => fixedOf(amount).policy);
    for (const key of ["a", "b"]) {
      const lent = { decision: peek(after, unused(after), START, 0), granted: { number: 7, units: 9, lasts: 50_000 }, deniesFor: 0 };
      borrowers.answered(key, borrowers.decide(key, before, 1, START, "before").asked.nth, undefined);
      borrowers.answered(key, borrowers.decide(key, after, 40, START, "after").asked.nth, lent);
    }
    assert.equal(borrowers.due(START + 1_999), undefined);
    const due = borrowers.due(START + 2_999);
    const returned = { wanted: 0, within: 0, owed: 0, lifetime: 60_000, back: { loan: 7, unspent: 9, kept: 0 } };
    assert.deepEqual([due.beside, due.asked.question], ["after", returned]);
    const other = due.key === "a" ? "b" : "a";
    assert.equal(borrowers.decide(other, after, 1, START + 2_999, "after").kind, "admit");
    assert.equal(borrowers.due(START + 2_999), undefined);
    // A clock that is set back does not make it younger.
    borrowers.decide("c", after, 1, START + 5_000, "after");
    assert.equal(borrowers.due(START)?.key, other);
  });
});

test("a loan of another size is accepted, and one that is not safe is corrupt", () => {
  const { now, question, before, rows } = JSON.parse(readFileSync(new URL("../../../core/tests/data/loans.json", import.meta.url), "utf8"));
  const { loan, unspent, kept, ...more } = question;
  for (const { verdict, used, granted, accepted } of rows) {
    const text = `${verdict}${before.replace("USED", used)}>${granted}`;
    const read = () => LOANS.lent({ kind: ASK_CHECK, policy: fixedOf(100).policy, cost: 1, now }, { ...more, owed: 0, back: { loan, unspent, kept } }, { isTimeless: false }, text).granted;
    const found = tried(() => read() ?? {});
    const shown = found.error ?? (found.number === undefined ? "" : `${found.number}:${found.units}:${now + found.lasts}`);
    assert.equal(shown, accepted ? granted : "corrupt", text);
  }
});
