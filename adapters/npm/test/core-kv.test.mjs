// Workers KV: the counts of an isolate are those of the core, number for number and byte for byte. A seed determines all that an isolate
// does, so both get the same.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Core } from "../modules/limiter_core.js";
import { keyOf } from "../modules/core/key.js";
import { MAX_INSTANT } from "../modules/core/arithmetic.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { TidegateError } from "../modules/error.js";
import { BLOCK, CHECK, PEEK, REFUND, RESET, SETTLE } from "../modules/question.js";
import { SHARED } from "../modules/stores/cloudflare-kv/counts.js";
import { draws, hashOf } from "../modules/stores/cloudflare-kv/draws.js";
import { Isolate } from "../modules/stores/cloudflare-kv/isolate.js";
import { encode } from "../modules/stores/cloudflare-kv/record.js";
import { ask, callOf, Chance, Reference, seeded } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 20_000);
/** The WebAssembly of the Rust, which build.sh makes. */
const REFERENCE = new URL("../reference/kv/", import.meta.url);

const NOW = 1_800_000_000_000;
/** How many sets the table of an isolate has. */
const SETS = 625n;
const [SECOND, DAY, YEAR] = [1_000, 86_400_000, 365 * 86_400_000];

const module = new WebAssembly.Module(readFileSync(new URL("tidegate.wasm", REFERENCE)));
let started = 0;

/** Starts a module of the reference. Each has an isolate of its own. */
async function engine() {
  const glue = await import(new URL(`glue.js?nth=${(started += 1)}`, REFERENCE));
  const { exports } = new WebAssembly.Instance(module, { "./tidegate_bg.js": glue });
  glue.start(exports);
  return glue;
}

const seedOf = ([high, low]) => (BigInt(high) << 32n) | BigInt(low);

/** What a failure says of where it is. */
const place = () => `seed ${SEED}, step ${place.step}`;

const hex = (bytes) => Buffer.from(bytes).toString("hex");

/** What was thrown, or what comes out. */
function outcome(run) {
  try {
    return run();
  } catch (thrown) {
    // Nothing else may be thrown.
    assert.ok(Array.isArray(thrown) && thrown.length === 2, String(thrown?.stack ?? thrown));
    return { error: thrown[0] };
  }
}

/** The isolate of the reference. */
class Theirs {
  #engine;
  #limits = new Map();

  constructor(engine, [high, low]) {
    this.#engine = engine;
    engine.seed(high, low);
  }

  #limit(options) {
    if (!this.#limits.has(options)) this.#limits.set(options, new Reference(this.#engine, options, []));
    return this.#limits.get(options);
  }

  get #any() {
    return this.#limits.values().next().value;
  }

  ask(call) {
    return outcome(() => this.asked(call));
  }

  asked({ options, question }) {
    const limit = this.#limit(options);
    const { kind, cost, now, extra } = question;
    const length = limit.took(limit.limit.ask(kind, limit.pass(question), cost, now, extra));
    return length === 0 ? limit.decision : { value: limit.extra, name: limit.text(length) };
  }

  learn({ options, question: { kind, cost, now, key } }, value, found) {
    return outcome(() => {
      const limit = this.#limit(options);
      limit.push(key);
      if (found === undefined) limit.took(limit.limit.failed(kind, limit.write("Error: no"), cost, now, value));
      else limit.took(limit.limit.read(kind, found ? limit.write(found) : -1, cost, now, value));
      return limit.decision;
    });
  }

  plan(now) {
    const limit = this.#any;
    return Array.from({ length: limit?.limit.due(now) ?? 0 }, (_, nth) => {
      const bytes = limit.bytes(limit.limit.put(nth));
      const [ttlS, [key, name]] = [limit.extra, limit.text(limit.limit.putNames(nth)).split("\n")];
      return { key, name, bytes: hex(bytes), ttlS };
    });
  }

  wrote(key, why) {
    this.#any.push(key);
    if (why !== undefined) this.#any.push(why);
    this.#any.limit.wrote();
  }

  appoint(now) {
    return this.#any ? this.#any.limit.appoint(now) : -1;
  }
}

const cores = new Map();

function coreOf(options) {
  if (!cores.has(options)) cores.set(options, new Core(options, SHARED, anyRule));
  return cores.get(options);
}

/** That of the TypeScript, with the same results. */
class Ours {
  #isolate;

  constructor([high, low]) {
    this.#isolate = new Isolate(seedOf([high, low]));
  }

  static asked({ options, question: { kind, cost, now, key: text } }) {
    const core = coreOf(options);
    const key = keyOf(text, core.policy.isOfGate);
    return { policy: core.policy, key, name: `tg1:${core.policy.id}:${key}`, now, cost, peeks: kind === PEEK };
  }

  ask(call) {
    return outcome(() => {
      const asked = Ours.asked(call);
      const answer = this.#isolate.ask(asked);
      return typeof answer === "number" ? { value: answer, name: `${asked.name}#${answer}` } : answer;
    });
  }

  learn(call, value, found) {
    return outcome(() => this.#isolate.learnt(Ours.asked(call), value, found));
  }

  plan(now) {
    return this.#isolate.planWrites(now).map(({ name, value, bytes, ttlS }) => ({ key: name, name: `${name}#${value}`, bytes: hex(bytes), ttlS }));
  }

  wrote(key, why) {
    this.#isolate.wrote(key, why);
  }

  appoint(now) {
    return this.#isolate.appoint(now);
  }
}

/** Both isolates with one seed. Each call makes both do the same, and compares the results. */
class Pair {
  constructor(engine, seed) {
    this.seed = seed;
    [this.ours, this.theirs] = [new Ours(seed), new Theirs(engine, seed)];
  }

  static async of(chance) {
    return new Pair(await engine(), [chance.below(2 ** 32), chance.below(2 ** 32)]);
  }

  #both(name, ...given) {
    const [ours, theirs] = [this.ours[name](...given), this.theirs[name](...given)];
    try {
      assert.deepEqual(ours, theirs);
    } catch (error) {
      const shown = JSON.stringify(given, (_, value) => (value instanceof ArrayBuffer ? hex(value) : value));
      throw new Error(`${place()}: ${name} ${shown}`, { cause: error });
    }
    return ours;
  }

  ask(call) {
    return this.#both("ask", call);
  }

  learn(call, value, found) {
    return this.#both("learn", call, value, found);
  }

  plan(now) {
    return this.#both("plan", now);
  }

  wrote(key, why) {
    return this.#both("wrote", key, why);
  }

  appoint(now) {
    return this.#both("appoint", now);
  }

  /** Decides, with what a read finds. */
  decide(call, found = () => null) {
    const answer = this.ask(call);
    return Array.isArray(answer) || answer.error ? answer : this.learn(call, answer.value, found(answer.name));
  }
}

let named = 0;

function quota(chance) {
  const algorithm = chance.from([0, 1, 3]);
  const span = chance.from([1, 7, 100, SECOND, SECOND, 10_000, 60_000, 60_000, 3_600_000, DAY, 2 ** 31, 2 ** 45]);
  const most = algorithm === 3 ? Math.floor(2 ** 51 / span) : 2 ** 51;
  const amount = chance.once(5) ? Math.max(Math.floor(most / chance.from([1, 2, 3, 1_000])), 1) : 1 + chance.below(chance.from([3, 10, 100]));
  const refill = algorithm === 3 ? (chance.once(5) ? 1 + chance.below(2 ** 40) : 1 + chance.below(10)) : 0;
  return { algorithm, place: "", amount: Math.min(amount, most), span, refill, name: undefined, by: undefined };
}

const USUAL = {
  ...{ platform: "cloudflare", ipv6Prefix: 64, trustTrueClientIp: false, problem: false, look: { asProblem: false, draft6: false, retryAfterMs: false }, failedOpenHeader: true },
  ...{ chargeDenied: false, groupBy: undefined, scopes: undefined, groupAt: -1, placeByKey: false },
};

/** One policy, or several with one name and one kind of counts, whose limits differ. */
function variants(chance) {
  const count = chance.once(2) ? 1 : 1 + chance.below(chance.from([3, 8]));
  const quotas = Array.from({ length: count }, () => quota(chance));
  const name = `p${(named += 1)}`;
  const tiers = chance.once(3) ? 2 : 1;
  // A gate names the quotas, and where it wants them counted.
  const isOfGate = chance.once(5);
  const gate = isOfGate ? { scopes: quotas.map(() => `${name}@user`).join(","), placeByKey: chance.once(2) } : {};
  return Array.from({ length: tiers }, () => {
    const amount = (one) => Math.max(Math.floor(one.amount / (1 + chance.below(3))), 1);
    const own = quotas.map((one, nth) => ({ ...one, amount: amount(one), name: isOfGate ? `${name}-${nth}` : undefined }));
    return { ...USUAL, ...gate, name, quotas: own };
  });
}

function question(chance, key, now) {
  const asked = ask(chance.once(6) ? PEEK : CHECK, now);
  asked.key = key;
  asked.cost = chance.once(3) ? chance.below(6) : chance.once(30) ? chance.from([1_000, 2 ** 40, 2 ** 49, 2 ** 51, 2 ** 53 - 1]) : 1;
  return asked;
}

const TEXTS = ["user:42", "a", "a b", "sub:a%20b", "key:x", "é", "ip:unknown", "tenant:1:2:3", "x".repeat(200), "ip:"];

/** Keys, many of which are in one network. */
function text(chance) {
  const number = () => chance.below(chance.from([2, 40]));
  return chance.from([
    () => chance.from(TEXTS),
    () => `user:${number()}`,
    () => `ip:10.${number()}.${number()}.${number()}`,
    () => `ip:2001:db8:${number().toString(16)}:${number().toString(16)}::/64`,
    () => `ip:2001:${number()}::/64`,
  ])();
}

const within = (instant) => Math.min(Math.max(instant, 0), MAX_INSTANT);

const IDS = Array.from({ length: 40 }, (_, nth) => (BigInt(nth * 7 + 1) << 32n) | BigInt(nth));

/** A value such as no isolate of the test has written, but which may be right. */
function forged(chance, { options }, now, ids) {
  const { policy } = coreOf(options);
  const count = chance.below(chance.from([2, 4, 34, 80]));
  // Counts that are right, of many isolates. Their buckets owe more together than a double holds.
  const isFull = chance.once(3);
  const longs = [
    () => BigInt(chance.below(10)),
    () => BigInt(chance.below(2 ** 30)) ** 2n,
    () => 2n ** 51n,
    () => 2n ** 53n + BigInt(chance.below(3)) - 1n,
    () => 2n ** 64n - 1n - BigInt(chance.below(3)),
  ];
  const at = () => within(now + chance.from([0, 0, -1, -chance.below(5_000), -chance.below(DAY), 30_000, 61_000, YEAR]));
  const start = (unit) => {
    const instant = isFull ? now : at();
    return chance.once(20) && !isFull ? instant : instant - (instant % unit);
  };
  const some = (rule) => chance.from([0, 1, chance.below(4), rule.amount, rule.amount, 2 ** 51, chance.once(10) ? 2 ** 52 : 3]);
  const units = (rule) => (isFull ? chance.from([chance.below(3), chance.once(9) ? rule.amount : 0]) : some(rule));
  const entry = () => {
    const states = policy.quotas.map(({ rule }) => {
      if (rule.code === "fw") return { start: start(rule.unit), used: units(rule) };
      if (rule.code === "sw") return { start: start(rule.unit), previous: units(rule), current: units(rule) };
      if (isFull) return { level: rule.full, at: within(now - chance.below(3)) };
      return { level: chance.from([0, 1, rule.unit, rule.full, rule.full, Math.floor(rule.full / 2), 2 ** 51]), at: at() };
    });
    return { id: chance.from(ids), at: isFull ? now : at(), total: chance.from(longs)(), states };
  };
  const all = Array.from({ length: count }, entry);
  const apart = all.filter(({ id }, nth) => all.findIndex((other) => other.id === id) === nth);
  return encode(policy, chance.once(8) ? all.slice(0, 40) : apart.slice(0, chance.once(8) ? 33 : 32));
}

/** Bytes with some of them changed. */
function garbled(chance, bytes) {
  const changed = new Uint8Array(bytes.slice(0, chance.once(3) ? chance.below(bytes.byteLength + 1) : bytes.byteLength));
  for (let nth = chance.below(3); nth >= 0 && changed.length > 0; nth--) changed[chance.below(changed.length)] = chance.below(256);
  return chance.once(4) ? Uint8Array.from([...changed, 0]).buffer : changed.buffer;
}

/** Workers KV, where each reader may see an old value for some time. */
class Namespace {
  #values = new Map();

  constructor(chance) {
    this.chance = chance;
  }

  put(name, bytes, now, writer) {
    const versions = this.#values.get(name) ?? [];
    versions.push({ bytes, writer, visibleAt: now + this.chance.below(60_000) });
    this.#values.set(name, versions.slice(-6));
  }

  get(name, now, reader) {
    const versions = (this.#values.get(name) ?? []).filter(({ writer, visibleAt }) => writer === reader || visibleAt <= now || this.chance.once(10));
    const age = this.chance.once(5) ? 1 + this.chance.below(3) : 1;
    return versions.at(-age)?.bytes ?? null;
  }
}

const REFUSALS = [
  "Error: KV PUT failed: 429",
  "Error: Too Many Requests",
  "Error: Too many API requests by single Worker invocation.",
  "Error: KV PUT failed: 500 Internal Server Error",
  "Error: KV put() limit exceeded for the day.",
];

/** Steps of a clock that mostly goes forward. At a quick pace, most requests read nothing. */
function step(chance, isWild, isQuick) {
  if (chance.once(30)) return -chance.below(chance.from([10, 2_000, 200_000, isWild ? YEAR : 10]));
  if (isWild && chance.once(200)) return chance.below(chance.from([DAY, YEAR]));
  // What an isolate waits for.
  if (chance.once(20)) return chance.from([999, 1_000, 5_000, 32_000, 33_000, 60_000]);
  return chance.below(chance.once(50) ? chance.from([2_000, 200_000]) : isQuick ? 30 : chance.from([1, 2, 50, 400, 2_000]));
}

/** Random requests, reads and writes of some isolates over one namespace. `choose` chooses what is counted. */
async function simulate(chance, steps, { begin = NOW, isWild = false, isolates, choose }) {
  const namespace = new Namespace(chance);
  const ids = [...IDS, ...isolates.map(({ seed }) => draws(seedOf(seed))())];
  const [reads, writes, isQuick, failing] = [[], [], chance.once(2), chance.from([3, 3, 9])];
  const seen = { allowed: 0, denied: 0, reads: 0, puts: 0, alone: 0, waits: 0 };
  let now = begin;
  const tell = (answer) => {
    if (!Array.isArray(answer)) return;
    seen[answer[0] === 0 ? "allowed" : "denied"] += 1;
    if (answer[5] === 2) seen.alone += 1;
  };
  const answer = ({ nth, call, value, name }) => {
    let found = namespace.get(name, now, nth);
    if (chance.once(isWild ? 3 : 60)) found = forged(chance, call, now, ids);
    if (chance.once(isWild ? 8 : 60)) found = found ? garbled(chance, found) : null;
    tell(isolates[nth].learn(call, value, chance.once(20) ? undefined : found));
  };
  for (place.step = 0; place.step < steps; place.step++) {
    now = within(now + step(chance, isWild, isQuick));
    const nth = chance.below(isolates.length);
    const pair = isolates[nth];
    const action = chance.below(10);
    if (action < 6) {
      const [options, key] = choose();
      const call = { options, question: question(chance, key, now) };
      const said = pair.ask(call);
      tell(said);
      if (said.name) {
        seen.reads += 1;
        const read = { nth, call, ...said };
        if (chance.once(6) && reads.length < 20) reads.push(read);
        else answer(read);
      }
    } else if (action === 6 && reads.length > 0) {
      answer(reads.splice(chance.below(reads.length), 1)[0]);
    } else if (action < 9) {
      const due = pair.plan(now);
      seen.puts += due.length;
      for (const put of due) writes.push({ nth, ...put });
      while (writes.length > 0 && !chance.once(8)) {
        const { nth, key, name, bytes } = writes.splice(chance.below(writes.length), 1)[0];
        const why = chance.below(10) < failing ? chance.from(REFUSALS) : undefined;
        // A write that fails may be there nevertheless.
        if (why === undefined || chance.once(10)) namespace.put(name, Uint8Array.from(Buffer.from(bytes, "hex")).buffer, now, nth);
        isolates[nth].wrote(key, why);
      }
      if (pair.appoint(now) >= 0) seen.waits += 1;
    } else if (pair.appoint(now) >= 0) {
      seen.waits += 1;
    }
  }
  return seen;
}

/** Keys that are held in one set of an isolate's table, with their policies. */
function crowd({ seed }, count, candidate) {
  const draw = draws(seedOf(seed));
  draw();
  const hash = draw();
  const found = [];
  while (found.length < count) {
    const [options, key] = candidate(found.length);
    const core = coreOf(options);
    if (hashOf(hash, `tg1:${core.policy.id}:${keyOf(key, core.policy.isOfGate)}`) % SETS === 0n) found.push([options, key]);
  }
  return found;
}

const windows = (name, ...quotas) => ({
  ...{ ...USUAL, name },
  quotas: quotas.map(([algorithm, amount, span, refill = 0]) => ({ algorithm, place: "", amount, span, refill, name: undefined, by: undefined })),
});

/** Token buckets that are nearly as large as they can be. */
function large(chance) {
  const bucket = () => {
    const span = chance.from([1, SECOND, 60_000, DAY]);
    return [3, Math.floor(2 ** 51 / span / chance.from([1, 1, 2, 5])), span, chance.from([1, 1_000, 2 ** 20, 2 ** 30 + 1, 2 ** 40 + 7, 2 ** 50])];
  };
  const first = bucket();
  // Two with the same wait, of which the first one is binding.
  const second = chance.once(2) ? [chance.from([bucket(), first])] : [];
  return windows(`large${(named += 1)}`, first, ...second, ...(chance.once(3) ? [[0, 5, SECOND]] : []));
}

test("isolates over one namespace decide, read and write the same", async () => {
  const chance = new Chance(SEED);
  const all = {};
  for (let round = 0; round < 40; round++) {
    const isolates = [];
    for (let nth = 0; nth < 3; nth++) isolates.push(await Pair.of(chance));
    const policies = Array.from({ length: chance.from([1, 2, 6]) }, () => (round % 8 === 7 ? [large(chance)] : variants(chance))).flat();
    const keys = Array.from({ length: 1 + chance.below(chance.from([1, 3, 12])) }, () => text(chance));
    const begin = round % 10 === 9 ? chance.from([0, MAX_INSTANT - DAY]) : NOW;
    const choose = () => [chance.from(policies), chance.from(keys)];
    const seen = await simulate(chance, STEPS / 40, { begin, isWild: round % 2 === 1, isolates, choose });
    for (const [name, count] of Object.entries(seen)) all[name] = (all[name] ?? 0) + count;
  }
  for (const [name, count] of Object.entries(all)) assert.ok(count > STEPS / 1_000, `${name}: ${count}`);
  if (process.env.TELL) console.log(all);
});

test("a count that a read does not find is written again when it should be there", async () => {
  const chance = new Chance(SEED);
  const options = windows("lost", [0, 5, DAY]);
  for (const [gap, count] of [[4_999, 0], [5_000, 1]]) {
    const pair = await Pair.of(chance);
    pair.decide({ options, question: { ...ask(CHECK, NOW), key: "user:1" } });
    for (const { key } of pair.plan(NOW)) pair.wrote(key, undefined);
    for (let value = 0; value < 4; value++) pair.learn({ options, question: { ...ask(PEEK, NOW + gap), key: "user:1" } }, value, null);
    assert.equal(pair.plan(NOW + gap).length, count);
  }
});

test("counts of others whose sum is above the largest limit", async () => {
  const pair = await Pair.of(new Chance(SEED));
  for (const algorithm of [0, 1]) {
    const options = windows(`sum${algorithm}`, [algorithm, 2 ** 51, DAY]);
    const call = (cost, now = NOW) => ({ options, question: { ...ask(CHECK, now), key: "user:1", cost } });
    const start = NOW - (NOW % DAY);
    const entries = [1n, 2n, 3n].map((nth) => {
      const states = [algorithm ? { start, previous: 2 ** 51, current: 2 ** 51 } : { start, used: 2 ** 51 }];
      return { id: nth << 32n, at: NOW, total: 2 ** 52, states };
    });
    pair.decide(call(1), () => encode(coreOf(options).policy, entries));
    for (const now of [NOW, NOW + DAY, NOW + 1.5 * DAY]) for (const cost of [0, 1, 2 ** 50]) pair.decide(call(cost, now));
  }
});

test("of two waits that doubles round to one, the longer one is that of the binding quota", async () => {
  const pair = await Pair.of(new Chance(SEED));
  const options = windows("waits", [3, 2_251_799_813_685, 1_000, 1], [3, 2_251_799_813_685, 1_000, 1]);
  const [level, at] = [1_920_000_000_000_000, NOW];
  const entries = [1n, 2n, 3n, 4n, 5n, 6n, 7n].map((nth) => ({ id: nth << 32n, at, total: level, states: [{ level, at }, { level: level + Number(nth === 7n), at }] }));
  const denial = pair.decide({ options, question: { ...ask(CHECK, NOW), key: "user:1" } }, () => encode(coreOf(options).policy, entries));
  assert.deepEqual(denial.slice(0, 3), [1, 1, 7 * level + 1_000 - 2_251_799_813_685_000]);
});

test("totals that no double holds", async () => {
  const chance = new Chance(SEED);
  const pair = await Pair.of(chance);
  const options = windows("total", [0, 2 ** 51, 1]);
  // The last ones are above the largest integer of 64 bits, at which a total stays.
  for (place.step = 0; place.step < 8_400; place.step++) {
    const now = NOW + 10 * place.step;
    const cost = 2 ** 51 - chance.below(3);
    assert.equal(pair.decide({ options, question: { ...ask(CHECK, now), key: "user:1", cost } })[0], 0);
    for (const { key } of pair.plan(now)) pair.wrote(key, undefined);
  }
});

test("a full set gives up the same key, whose group keeps its count", async () => {
  const chance = new Chance(SEED);
  const seen = [];
  for (let round = 0; round < 4; round++) {
    const pair = await Pair.of(chance);
    const policies = [
      windows(`a${round}`, [0, 5, DAY]),
      windows(`b${round}`, [1, 5, 60_000]),
      windows(`c${round}`, [3, 5, 60_000, 1], [0, 20, 10_000]),
      windows(`c${round}`, [3, 9, 60_000, 1], [0, 10, 10_000]),
    ];
    const octet = () => chance.below(256);
    const addresses = [
      () => `ip:10.1.${chance.below(3)}.${octet()}`,
      () => `ip:10.${chance.below(2)}`,
      () => `ip:10.1.${chance.below(2)}`,
      () => `ip:10.${octet()}.${octet()}.${octet()}`,
      () => `ip:2001:db8:${octet()}:${octet()}::/64`,
      () => `ip:2001:db8:1:${octet().toString(16)}::/64`,
      () => `user:${chance.below(2 ** 20)}`,
    ];
    const calls = crowd(pair, 60, () => [chance.from(policies), chance.from(addresses)()]);
    seen.push(await simulate(chance, STEPS / 8, { isWild: round % 2 === 1, isolates: [pair], choose: () => chance.from(calls) }));
  }
  if (process.env.TELL) console.log(seen);
});

test("an isolate that has forgotten keys of too many policies refuses the same", async () => {
  const chance = new Chance(SEED);
  const pair = await Pair.of(chance);
  const policies = Array.from({ length: 80 }, (_, nth) => windows(`full${nth}`, [0, 5, DAY]));
  const calls = crowd(pair, 120, (nth) => [policies[nth % 80], `ip:10.1.1.${chance.below(2 ** 20)}`]);
  const answers = calls.map(([options, key], nth) => pair.decide({ options, question: { ...ask(CHECK, NOW + nth), key } }));
  assert.ok(answers.some(({ error }) => error === "refused"), "none is refused");
  assert.ok(Array.isArray(pair.decide({ options: policies[0], question: { ...ask(CHECK, NOW + 2 * DAY), key: calls[0][1] } })));
});

test("an isolate of more keys than it holds does the same", async () => {
  const chance = new Chance(SEED);
  const pair = await Pair.of(chance);
  const policy = windows("big", [0, 3, DAY]);
  const other = windows("brief", [1, 3, SECOND]);
  const key = (nth) => {
    if (nth % 5 === 0) return `user:${nth}`;
    if (nth % 5 === 1) return `ip:2001:db8:${(nth % 50).toString(16)}:${nth.toString(16)}::/64`;
    return `ip:${10 + (nth % 3)}.${nth >> 12}.${(nth >> 6) & 63}.${nth & 63}`;
  };
  const seen = { denied: 0, puts: 0, waits: 0 };
  let now = NOW;
  const flush = () => {
    seen.puts += pair.plan(now).map(({ key, name }) => pair.wrote(key, chance.once(20) ? REFUSALS[0] : undefined) ?? name).length;
    if (pair.appoint(now) >= 0) seen.waits += 1;
  };
  for (place.step = 0; place.step < 27_000; place.step++) {
    const nth = place.step;
    // At first nobody writes, so that as many wait as there is room for.
    const isFlushed = nth > 23_000;
    now += chance.below(3);
    const chosen = key(nth < 24_000 ? nth : chance.below(nth));
    const answer = pair.decide({ options: nth % 7 === 0 ? other : policy, question: { ...ask(CHECK, now), key: chosen } });
    if (answer[0] !== 0) seen.denied += 1;
    if (isFlushed && nth % 5 === 0) flush();
  }
  // Those that have waited longest have given up their places.
  while (pair.appoint(now) >= 0) flush();
  for (const [name, count] of Object.entries(seen)) assert.ok(count > 500, `${name}: ${count}`);
  if (process.env.TELL) console.log(seen);
});

test("the capabilities and what is unsupported", async () => {
  const chance = new Chance(SEED);
  const engines = await engine();
  const options = windows("can", [0, 5, DAY]);
  const limit = new Reference(engines, options, []);
  assert.deepEqual({ ...SHARED }, limit.limit.capabilities ? limit.capabilities : JSON.parse(limit.describe(3)));
  const pair = new Pair(engines, [1, 2]);
  for (let nth = 0; nth < 200; nth++) {
    const asked = ask(chance.from([CHECK, PEEK, SETTLE, REFUND, BLOCK, RESET]), NOW);
    Object.assign(asked, { key: "user:1", cost: chance.below(3), token: chance.from([undefined, "token"]), extra: chance.below(3) });
    if (asked.kind === SETTLE) asked.token = "token";
    const call = { options, question: asked };
    const ours = said(() => (coreOf(options).verify(asked), pair.ours.ask(call)));
    const theirs = said(() => pair.theirs.asked(call));
    assert.deepEqual(ours, theirs, JSON.stringify(asked));
  }
});

/** What is thrown, as a text, or what comes out. */
function said(run) {
  try {
    return run();
  } catch (thrown) {
    return TidegateError.from(thrown).message;
  }
}

test("the host reads and writes the same", async () => {
  const chance = new Chance(SEED);
  const seed = [chance.below(2 ** 32), chance.below(2 ** 32)];
  const theirs = new Theirs(await engine(), seed);
  const { Counts } = await import(`../modules/stores/cloudflare-kv/counts.js?seed=${SEED}`);
  const all = [windows("host", [0, 9, 60_000], [3, 9, 1_000, 3]), windows("host2", [1, 5, 10_000])];
  const real = crypto.getRandomValues;
  crypto.getRandomValues = (numbers) => (numbers.set(seed), numbers);
  const [puts, stored] = [[], new Namespace(chance)];
  let [now, refusal] = [NOW, undefined];
  const namespace = {
    get: async (name, given) => {
      assert.deepEqual(given, { type: "arrayBuffer", cacheTtl: 30 });
      if (refusal) throw new Error("KV GET failed: 500");
      return stored.get(name, now, 0);
    },
    put: async (name, bytes, { expirationTtl }) => {
      const failed = chance.once(5) ? chance.from(REFUSALS) : undefined;
      puts.push({ name, bytes: hex(bytes), ttlS: expirationTtl, failed: failed && `Error: ${failed}` });
      if (failed) throw new Error(failed);
      stored.put(name, bytes, now, 0);
    },
  };
  const counts = new Map(all.map((options) => [options, new Counts(coreOf(options), namespace, 30)]));
  try {
    assert.equal(await counts.get(all[0]).flush(now), -1, "nothing is counted yet");
    for (place.step = 0; place.step < STEPS / 10; place.step++) {
      now += step(chance, false, true);
      const options = chance.from(all);
      const [core, store] = [coreOf(options), counts.get(options)];
      if (chance.once(3)) {
        puts.length = 0;
        const wait = await store.flush(now);
        const due = theirs.plan(now);
        const written = ({ name, bytes, ttlS }) => ({ name, bytes, ttlS });
        assert.deepEqual(puts.map(written), due.map(written), place());
        due.forEach(({ key }, nth) => theirs.wrote(key, puts[nth].failed));
        assert.equal(wait, theirs.appoint(now), place());
        continue;
      }
      const call = { options, question: { ...question(chance, `user:${chance.below(20)}`, now), policy: core.policy } };
      refusal = chance.once(9);
      const sent = store.send(callOf(call.question));
      const answer = theirs.ask(call);
      assert.equal(sent !== undefined, !Array.isArray(answer), place());
      if (!sent) {
        assert.deepEqual(core.decision, answer, place());
        continue;
      }
      let found;
      const isLate = chance.once(9);
      try {
        found = await sent;
        if (isLate) assert.ok(store.late(callOf(call.question)));
        else store.answered(callOf(call.question), found);
      } catch (thrown) {
        store.threw(callOf(call.question), thrown);
      }
      assert.deepEqual(core.decision, theirs.learn(call, callOf(call.question).note, isLate ? undefined : found), place());
    }
  } finally {
    crypto.getRandomValues = real;
  }
});
