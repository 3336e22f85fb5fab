// The policies, keys, decisions and responses of the TypeScript are those of the core: the same questions get the same answers.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { sha256 } from "../modules/core/sha256.js";
import { block, copied, decide, grant, refund, unused } from "../modules/core/decide.js";
import { AddressSource } from "../modules/core/address.js";
import { EXACT } from "../modules/core/capabilities.js";
import { undecided } from "../modules/core/response.js";
import { sent } from "../modules/core/response_look.js";
import { ClientAddress } from "../modules/client_address.js";
import { PAID } from "../modules/decision_numbers.js";
import { bytesOf, hexOf } from "../modules/core/codec.js";
import { chargeIdOf, Core } from "../modules/limiter_core.js";
import { anyRule } from "../modules/core/algorithms/make_algorithm.js";
import { TidegateError } from "../modules/error.js";
import { MAX_INSTANT } from "../modules/core/arithmetic.js";
import { BALANCES } from "../modules/balances.js";
import { BLOCK, CHECK, GRANT, PEEK, REFUND, RESET, SETTLE } from "../modules/question.js";
import { Memory } from "../modules/stores/memory/memory.js";
import { LOANS } from "../modules/stores/redis/loans.js";
import { answer, scriptFor, words } from "../modules/stores/redis/wire.js";
import { called } from "../modules/store.js";
import { Versioned, versioned as capabilities } from "../modules/versioned.js";
import { ask, calendarQuota, callOf, Chance, latestKnown, Reference, seeded, started } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 20_000);

const memory = await started("memory");
const redis = await started("redis");
const versioned = await started("versioned");
memory.seed(1, 2, 3, 4);

const KINDS = [CHECK, CHECK, CHECK, CHECK, CHECK, PEEK, SETTLE, REFUND, BLOCK, RESET];
/** Those of a policy with a balance. */
const KINDS_OF_BALANCE = [...KINDS, GRANT, GRANT, GRANT, SETTLE];

/** What is thrown, as [kind, message] in JavaScript's names. */
function thrown(run) {
  try {
    return { value: run() };
  } catch (error) {
    const { kind, message } = TidegateError.from(error);
    return { kind, message };
  }
}

/** A message of Rust with JavaScript's names. */
function inJavaScript(message) {
  const names = message.replace(/\b(window|per|lifetime|base|cap)_ms\b/g, "$1Ms").replace("charge_denied", "chargeDenied").replace("group_by", "groupBy").replace("carry_over", "carryOver");
  return names.replace(/(?<!concurrency\.)return(s_c|sC)ost/, "concurrency.returnsCost");
}

/** When the clocks of the tests begin, or at 5. */
const [USUAL_NOW, LAST_NOW] = [1_800_000_000_000, 2 ** 48 - 100_000];

/** When the clock of a policy begins: where its windows are known. */
function clockOf(chance, { quotas }) {
  const now = chance.from([USUAL_NOW, USUAL_NOW, 5, LAST_NOW]);
  return now <= latestKnown(quotas) ? now : USUAL_NOW;
}

/** A balance, and what it covers. Both count by one key. */
function paying(chance) {
  const own = { ...quota(chance, false, 9), amount: chance.from([1, 20, 1_000, 2 ** 51]) };
  if (chance.once(3)) return [own];
  const included = quota(chance, false, chance.from([0, 3, 8]));
  return [{ ...included, name: undefined }, { ...own, refill: 1, name: undefined, by: included.by }];
}

let named = 0;

/** A quota with numbers that are small, usual, or as large as they can be. */
function quota(chance, isWild, algorithm = chance.below(isWild ? 10 : 9)) {
  const span = chance.from([1, 7, 1_000, 1_000, 60_000, 60_000, 3_600_000, 86_400_000, 2 ** 31]);
  const most = 2 ** 51 / span;
  const amount = chance.once(8) ? Math.floor(most / chance.from([1, 2, 3, 1_000])) : 1 + chance.below(chance.from([3, 10, 100]));
  const refill = chance.once(8) ? 1 + chance.below(2 ** 40) : 1 + chance.below(10);
  const [least, cap] = [1 + chance.below(5_000), 5_000 + chance.below(100_000)];
  const numbers = [
    { amount, span, refill: 0 },
    { amount, span, refill: 0 },
    { amount: Math.min(amount, 1_000), span, refill: 0 },
    { amount, span, refill },
    { amount, span, refill },
    { amount: Math.min(amount, 5), span, refill: Number(chance.once(3)) },
    { amount: cap, span: least, refill: 1 + chance.below(4) },
    { amount: cap, span: 0, refill: 0 },
    calendarQuota((end) => chance.below(end), chance.from([USUAL_NOW, USUAL_NOW, LAST_NOW]), Math.min(amount, 2 ** 51)),
    { amount: Math.min(amount, 2 ** 51), span: 0, refill: Number(isWild && chance.once(2)), part: BALANCES },
  ][algorithm];
  const wild = isWild && chance.once(4) ? { amount: chance.from([0, 1, 2 ** 51, 2 ** 51 + 1, 2 ** 53 - 1]), span: chance.from([0, 1, 2 ** 51, 2 ** 52]) } : {};
  const name = chance.once(6) ? chance.from(["a", "b", "c-1", "Über", "", "x".repeat(33)].slice(0, isWild ? 6 : 3)) : undefined;
  const by = chance.once(5) ? chance.from(["user", "tenant", ".."]) : undefined;
  return { algorithm, place: "", ...numbers, ...wild, name, by };
}

/** How responses look, for the package and for the core. */
const lookOf = (problem) => ({ problem, look: { asProblem: problem, draft6: false, retryAfterMs: false } });

/** A policy, of counts that no other has. */
function options(chance, isWild = false) {
  const count = isWild && chance.once(20) ? chance.from([0, 9]) : chance.once(2) ? 1 : 1 + chance.below(5);
  const quotas = Array.from({ length: count }, () => quota(chance, isWild));
  if (!isWild && chance.once(3)) quotas.splice(chance.below(count + 1), 0, ...paying(chance));
  const name = isWild && chance.once(10) ? chance.from(["", "a b", "é"]) : `p${(named += 1)}`;
  const ofGate = !isWild && chance.once(5) && quotas.length > 0;
  const first = quotas[0]?.by;
  // With a balance, the core asks for the key of a group by its name.
  const isGrouped = quotas.every(({ algorithm }) => algorithm !== 9) || new Set(quotas.map(({ by }) => by)).size > 1;
  return {
    ...{ platform: "cloudflare", ipv6Prefix: 64, trustTrueClientIp: false, ...lookOf(chance.once(3)), failedOpenHeader: true },
    ...{ name, chargeDenied: chance.once(5), groupBy: !ofGate && isGrouped && chance.once(4) ? (first ?? chance.from(["user", "nobody", ""])) : undefined },
    ...{ scopes: ofGate ? quotas.map((_, nth) => `${name}@${Math.floor(nth / 2)}`).join(",") : undefined, groupAt: ofGate && chance.once(3) ? 0 : -1, placeByKey: ofGate && chance.once(3) },
    quotas: ofGate ? quotas.map((quota, nth) => ({ ...quota, name: `${name}-${nth}`, by: ["", "", "b", "b"][nth] ?? "b" })) : quotas,
  };
}

const TEXTS = ["user:42", "a", "a/b", "/a", "a//b", "a b", "a%20b", "sub:a%20b", "sub:a b", "key:x", "ip:1.2.3.4", "é", "sub:é", "x~y", "~", "%", "%4", "sub:%61", "ip:%2F", "a\nb", "😀"];

function text(chance) {
  if (chance.once(3)) return chance.from(TEXTS);
  const alphabet = chance.from(["abc:/", "aZ09._:@=+-/", "a/%~ é", "%0123456789ABCDEFabcdef"]);
  const start = chance.from(["", "", "sub:", "key:", "ip:"]);
  const length = chance.once(6) ? 110 + chance.below(40) : chance.below(20);
  const chosen = start + Array.from({ length }, () => chance.from([...alphabet])).join("");
  return chance.once(30) ? `${chosen.slice(0, 63)}~${"0123456789abcdef".repeat(4)}` : chosen;
}

/** `tokens` is empty if only those that hold slots have one. */
function question(chance, core, now, keys, tokens) {
  const kinds = core.policy.balance ? KINDS_OF_BALANCE : KINDS;
  const asked = ask(chance.from(tokens.length > 0 ? kinds : kinds.filter((kind) => kind !== SETTLE)), now);
  const chosen = core.dimensions.map(() => chance.from(keys));
  asked.policy = core.policy;
  asked.key = chosen.pop();
  asked.others = chosen;
  asked.cost = chance.once(3) ? chance.below(12) : chance.once(40) ? chance.from([2 ** 51, 2 ** 53 - 1, 1_000]) : 1;
  if (asked.kind === SETTLE && chance.once(4)) asked.cost = -1;
  if (asked.kind === SETTLE || (asked.kind === CHECK && tokens.length > 0 && (chance.once(4) || core.policy.holdsSlots))) asked.token = chance.from(tokens);
  if (asked.kind === CHECK && asked.token) asked.extra = chance.from([0, 1, 1_000, 600_000, 2 ** 53 - 1]);
  if (asked.kind === GRANT) {
    [asked.token, asked.extra] = [chance.from(["g1", "g2", "g3", "t1", `g${chance.below(1_000)}`, " "]), chance.from([0, 1, 1_000, 2 ** 40])];
    asked.cost = chance.once(4) ? chance.from([0, 2 ** 51, 2 ** 51 + 1, 1_000]) : 1 + chance.below(40);
    asked.expires = chance.once(2) ? MAX_INSTANT : Math.min(asked.now + chance.from([0, 1, chance.below(100), chance.below(100_000), 60_000]), MAX_INSTANT);
  }
  if (asked.kind === REFUND) asked.extra = Math.max(asked.now - chance.below(chance.from([2, 2_000, 100_000])), 0);
  if (asked.kind === BLOCK) asked.extra = chance.from([0, 1, 1_000, 60_000, 2 ** 53 - 1]);
  return asked;
}

/** Options with a policy that all stores take. */
const USUAL = {
  ...{ platform: "cloudflare", ipv6Prefix: 64, trustTrueClientIp: false, problem: false, look: { asProblem: false, draft6: false, retryAfterMs: false }, failedOpenHeader: true },
  ...{ name: "api", chargeDenied: false, groupBy: undefined, scopes: undefined, groupAt: -1, placeByKey: false },
  quotas: [{ algorithm: 0, place: "", amount: 10, span: 1_000, refill: 0, name: undefined, by: undefined }],
};

/** Two core limiters of the same options: the TypeScript's, and the reference. */
function pair(engine, chosen, own) {
  const ours = thrown(() => new Core(chosen, EXACT, anyRule));
  const theirs = thrown(() => new Reference(engine, chosen, own));
  return [ours, theirs];
}

/** Steps of a clock that mostly goes forward. */
function step(chance) {
  if (chance.once(20)) return -chance.below(chance.from([10, 2_000, 200_000]));
  return chance.below(chance.from([1, 2, 50, 2_000, 100_000]));
}

test("SHA-256", () => {
  const chance = new Chance(SEED);
  for (let length = 0; length < 300; length++) {
    const bytes = Uint8Array.from({ length }, () => chance.below(256));
    assert.equal(sha256(bytes), createHash("sha256").update(bytes).digest("hex"));
  }
});

test("policies: the same are right, and wrong ones have the same error", () => {
  const chance = new Chance(SEED);
  let wrong = 0;
  for (let nth = 0; nth < STEPS / 10; nth++) {
    const chosen = options(chance, true);
    const [ours, theirs] = pair(redis, chosen, [false, true, 0, 0, 0, 0]);
    const place = `seed ${SEED}: ${JSON.stringify(chosen)}`;
    assert.equal(ours.kind, theirs.kind, `${place}\n${ours.message}\n${theirs.message}`);
    if (ours.kind) {
      wrong += 1;
      assert.equal(ours.message, inJavaScript(theirs.message), place);
    } else {
      assert.deepEqual(ours.value.dimensions, theirs.value.describe(0).split(","), place);
      assert.deepEqual(ours.value.policy.names, theirs.value.describe(1).split(","), place);
      assert.deepEqual({ ...ours.value.capabilities }, theirs.value.capabilities, place);
    }
  }
  assert.ok(wrong > STEPS / 200);
});

test("senders: the same key", () => {
  const chance = new Chance(SEED);
  const parts = ["1", "0", "255", "256", "01", "10", "::", ":", "ffff", "2001:db8::1", "64:ff9b::", "2002:", "2001:0:", "1.2.3.4", "127.0.0.1", "10.0.0.1", "192.168.1.1", "100.64.0.1", "172.16.0.1", "169.254.1.1", "::ffff:", "[", "]", "%eth0", ":80", ":99999", ",", " ", "\t", "fe80::1", "2a06:98c0:3600::103", "0.0.0.0", "abcd:ef01:2345:6789:", "é", "unknown"];
  for (const platform of ["cloudflare", "vercel", "netlify", "fastly", "spin", "direct"]) {
    for (const [ipv6Prefix, trustTrueClientIp] of [[64, false], [48, true], [56, false], [127, false], [128, false], [61, true]]) {
      const chosen = { ...USUAL, platform, ipv6Prefix, trustTrueClientIp };
      const [, { value: theirs }] = pair(redis, chosen, [false, true, 0, 0, 0, 0]);
      const ours = new ClientAddress(platform, ipv6Prefix, trustTrueClientIp);
      const { fields } = new AddressSource(platform, ipv6Prefix, trustTrueClientIp);
      assert.deepEqual(fields, theirs.describe(2).split(",").filter(Boolean));
      for (let nth = 0; nth < STEPS / 20; nth++) {
        const address = () => {
          if (chance.once(6)) return undefined;
          if (chance.once(3)) return Array.from({ length: 8 }, () => chance.from(["0", "0", "1", "abcd", "FFFF", "64", "ff9b", "2002"])).join(":").replace(/(0:)+/, chance.once(2) ? ":" : "0:");
          if (chance.once(3)) return Array.from({ length: 4 }, () => chance.below(260)).join(".");
          return Array.from({ length: 1 + chance.below(3) }, () => chance.from(parts)).join(chance.from(["", "", ".", ":"]));
        };
        const [first, second, peer] = [address(), address(), address()];
        const identity = chance.once(8) ? { subject: text(chance), apiKey: undefined } : chance.once(8) ? { subject: "", apiKey: text(chance) } : {};
        const given = [first, first ? undefined : second, peer, identity];
        const [told, key] = [`${platform} ${ipv6Prefix} ${JSON.stringify(given)}`, theirs.key(...given)];
        const values = { [fields[1]]: second, [fields[0]]: first };
        const request = { headers: { get: (name) => values[name] ?? null } };
        const own = () => ours.keyOf(request, peer, identity, () => {});
        assert.equal(own(), key, told);
        assert.equal(own(), key, `${told}, once more`);
      }
    }
  }
  assert.throws(() => new Reference(redis, { ...USUAL, ipv6Prefix: 47 }, []));
  for (const prefix of [47, 129]) assert.throws(() => new ClientAddress("vercel", prefix, false), { field: "ipv6Prefix" });
});

test("memory: the same decisions, responses and errors", () => {
  const chance = new Chance(SEED);
  const counts = {};
  for (let done = 0; done < STEPS; ) {
    const chosen = options(chance);
    const [ours, theirs] = pair(memory, chosen, []);
    assert.equal(ours.kind, theirs.kind, `seed ${SEED}: ${JSON.stringify(chosen)} ${ours.message} ${theirs.message}`);
    if (ours.kind) continue;
    const [core, reference, counter] = [ours.value, theirs.value, new Memory(ours.value)];
    const keys = Array.from({ length: 2 }, () => text(chance));
    const tokens = core.policy.holdsSlots || chance.once(2) ? ["t1", "t2", "t3", "é".repeat(50), " \t"] : [];
    let now = clockOf(chance, chosen);
    const length = 20 + chance.below(100);
    const history = [];
    for (let nth = 0; nth < length; nth++, done++) {
      // When a row that has expired is removed is not the same, which a clock that steps back would show.
      now = Math.min(now + Math.abs(step(chance)), latestKnown(chosen.quotas));
      const asked = question(chance, core, now, keys, tokens);
      history.push(asked);
      const mine = thrown(() => (counter.answer(asked), core.decision));
      const { kind, cost, now: at, extra } = asked;
      const other = thrown(() => (reference.took(reference.limit.ask(kind, reference.pass(asked), cost, at, extra)), reference.decision));
      const place = () => `seed ${SEED}: ${JSON.stringify(chosen)}\n${history.slice(-20).map((one) => JSON.stringify(one)).join("\n")}\n${mine.message} | ${other.message}`;
      assert.equal(mine.kind, other.kind, place());
      counts[mine.kind ?? kind] = (counts[mine.kind ?? kind] ?? 0) + 1;
      if (mine.kind) assert.equal(mine.message, other.message, place());
      if (mine.kind || kind === REFUND || kind === BLOCK || kind === RESET) continue;
      assert.deepEqual(mine.value, other.value, place());
      if (kind === CHECK && mine.value[PAID] > 0) counts.paid = (counts.paid ?? 0) + 1;
      if (nth % 4 === 0) assert.deepEqual({ ...sent(core.policy, mine.value, chosen.look) }, reference.sent(other.value), place());
    }
  }
  assert.ok(counts.paid > STEPS / 1_000, JSON.stringify(counts));
  for (const kind of [...KINDS_OF_BALANCE, "invalid", "token_reused", "unknown_charge"]) assert.ok(counts[kind] > 0, `${kind} came never`);
});

test("responses to requests that were not decided on", () => {
  const reference = new Reference(redis, USUAL, [false, true, 0, 0, 0, 0]);
  for (const kind of ["invalid", "unavailable", "timeout", "contended", "corrupt", "refused", "unsupported", "token_reused", "unknown_charge", "misconfigured"]) {
    for (const failsOpen of [true, false]) assert.deepEqual({ ...undecided(kind, failsOpen, USUAL.failedOpenHeader) }, reference.undecided(kind, failsOpen));
  }
});

/** The states as the scripts write them. */
function written(core, states) {
  return core.policy.quotas.map(({ rule: { code } }, nth) => {
    const state = states[nth];
    if (code === "sl") return `sl1${state.entries.map(({ at, units }) => ` ${at}:${units}`).join("")};`;
    if (code === "cc") return `cc1${state.slots.map(({ id, at, cost }) => ` ${id}:${at}:${cost}`).join("")};`;
    if (code === "ba") return `ba1 ${state.debt}${state.lots.map(({ units, expires }) => ` ${units}:${expires}`).join("")};`;
    if (code === "pn") return `pn1 ${state.strikes} ${state.until}${state.length > 0 ? ` ${state.length}` : ""};`;
    return `${code}1 ${Object.values(state).join(" ")};`;
  }).join("");
}

test("Redis: the same commands, and answers mean the same", () => {
  const chance = new Chance(SEED);
  const counts = {};
  for (let done = 0; done < STEPS; ) {
    const chosen = options(chance);
    const [isTimeless, minTtlMs] = [chance.once(2), chance.from([0, 0, 1, 60_000])];
    const [ours, theirs] = pair(redis, chosen, [false, isTimeless, minTtlMs, 0, 0, 0]);
    if (ours.kind) continue;
    const [core, reference, wire] = [ours.value, theirs.value, { isTimeless, minTtlMs, loans: LOANS }];
    const keys = Array.from({ length: 3 }, () => text(chance));
    const tokens = ["t1", "t2\n", "é", "  "];
    let now = clockOf(chance, chosen);
    let states;
    for (let nth = 0; nth < 60; nth++, done++) {
      now = Math.min(Math.max(now + step(chance), 0), latestKnown(chosen.quotas));
      const asked = question(chance, core, now, keys, tokens);
      const { kind, cost, now: at, extra } = asked;
      const place = () => `seed ${SEED}: ${JSON.stringify(chosen)} ${JSON.stringify(asked)}`;
      // A balance is not lent.
      const isLent = chance.once(20) && !core.policy.balance;
      const mine = thrown(() => {
        core.verify(asked);
        const script = isLent && kind !== RESET ? 2 : scriptFor(asked, wire, false);
        return { script, words: words(core, asked, script, wire).join("\n") };
      });
      const other = thrown(() => {
        const length = reference.took(reference.limit.ask(kind, reference.pass(asked), cost, at, extra, isLent));
        return { script: Math.abs(reference.extra) & 3, words: reference.text(length) };
      });
      assert.equal(mine.kind, other.kind, `${place()} ${mine.message} ${other.message}`);
      if (mine.kind) continue;
      assert.deepEqual(mine.value, other.value, place());
      if (kind === RESET) continue;
      // An answer, right or garbled.
      const { script } = mine.value;
      let state = states && !chance.once(5) ? written(core, states) : "";
      if (chance.once(12)) state = garbled(chance, state);
      const verdict = chance.from(["a", "a", "d", "r", "x"].slice(0, chance.once(10) ? 5 : 3));
      // What a balance pays of the check, or something else.
      const pays = core.policy.balance && kind === CHECK ? decide(core.policy, states ? copied(core.policy.quotas, states) : unused(core.policy), now, cost)[PAID] : 0;
      const paid = core.policy.balance && chance.once(8) ? chance.below(3) : pays;
      const tells = isTimeless || asked.token !== undefined || paid > 0;
      const told = tells ? `@${Math.max(now - (isTimeless && paid === 0 ? chance.below(3) : 0), 0)} ${kind === SETTLE || kind === GRANT ? 0 : cost}${paid > 0 ? `+${paid}` : ""} ` : "";
      const answers = chance.once(20) ? chance.from(["", "a", "nonsense", `${verdict}@1`, `${verdict}${state}`]) : verdict + told + state;
      const read = thrown(() => answer(asked, script, wire, answers));
      const expected = thrown(() => {
        if (asked.token !== undefined) reference.pass(asked);
        else if (asked.others.length > 0) reference.pass(asked);
        return reference.took(reference.limit.read(kind, reference.write(answers), cost, at, extra, script)) === 1 ? undefined : reference.decision;
      });
      // One verdict of two is wrong: try the other, too.
      assert.equal(read.kind, expected.kind, `${place()} ${JSON.stringify(answers)}\n${read.message}\n${expected.message}`);
      assert.deepEqual(read.value, expected.value, `${place()} ${JSON.stringify(answers)}`);
      if (read.value?.[PAID] > 0) counts.paid = (counts.paid ?? 0) + 1;
      counts[read.kind ?? "read"] = (counts[read.kind ?? "read"] ?? 0) + 1;
      states = stepped(core, asked, states, now);
    }
  }
  assert.ok(counts.read > STEPS / 10 && counts.corrupt > STEPS / 200 && counts.paid > STEPS / 1_000, JSON.stringify(counts));
});

test("stores with conditional writes: the same names, values and decisions", () => {
  const chance = new Chance(SEED);
  const counts = {};
  for (let done = 0; done < STEPS; ) {
    const chosen = options(chance);
    const readsLastWrite = chance.once(2);
    const ours = thrown(() => new Core(chosen, capabilities(readsLastWrite), anyRule));
    const theirs = thrown(() => new Reference(versioned, chosen, [readsLastWrite, 0]));
    assert.equal(ours.kind, theirs.kind, `seed ${SEED}: ${JSON.stringify(chosen)} ${ours.message} ${theirs.message}`);
    if (ours.kind) {
      assert.equal(ours.message, inJavaScript(theirs.message));
      continue;
    }
    const [core, reference] = [ours.value, theirs.value];
    assert.deepEqual({ ...core.capabilities }, reference.capabilities);
    const keys = Array.from({ length: 3 }, () => text(chance));
    let now = clockOf(chance, chosen);
    let value;
    for (let nth = 0; nth < 60; nth++, done++) {
      now = Math.min(Math.max(now + step(chance), 0), latestKnown(chosen.quotas));
      const asked = question(chance, core, now, keys, ["t"]);
      const { kind, cost, now: at, extra } = asked;
      const place = () => `seed ${SEED}: ${JSON.stringify(chosen)} ${JSON.stringify(asked)} ${value}`;
      const found = value && chance.once(12) ? bytesOf(garbledHex(chance, hexOf(value))) : value;
      const written = {};
      const read = found && { bytes: found, version: "1" };
      const write = (name, bytes, ttl) => Object.assign(written, { name, bytes, ttl });
      const values = { read: (name) => ((written.name = name), read), create: write, update: (name, bytes, _, ttl) => write(name, bytes, ttl), delete: (name) => ((written.name = name), undefined) };
      const store = new Versioned("store", core, values, { ttlMin: 0, remembers: false, queue: undefined });
      const mine = thrown(() => {
        const call = called(asked);
        store.send(call);
        if (store.answered(call, read)) store.answered(call, true);
        return { ...written, decision: core.decision };
      });
      const other = thrown(() => {
        const name = reference.text(reference.limit.ask(kind, reference.pass(asked), cost, at, extra));
        if (kind === RESET) return { name };
        reference.push(asked.key);
        const length = reference.took(reference.limit.read(kind, found ? reference.write(found) : -1, cost, at, extra));
        const decision = reference.decision;
        return { name, ...(length > 0 ? { bytes: reference.bytes(length), ttl: reference.extra } : {}), decision };
      });
      assert.equal(mine.kind, other.kind, `${place()} ${mine.message} ${other.message}`);
      counts[mine.kind ?? kind] = (counts[mine.kind ?? kind] ?? 0) + 1;
      if (mine.kind) continue;
      if (kind === RESET) delete mine.value.decision;
      assert.deepEqual(mine.value, other.value, place());
      value = mine.value.bytes ?? value;
    }
  }
  assert.ok(counts[CHECK] > STEPS / 10 && counts.corrupt > STEPS / 500, JSON.stringify(counts));
});

function garbledHex(chance, hex) {
  const at = 2 * chance.below(hex.length / 2 + 1);
  return hex.slice(0, at) + chance.from(["", "00", "ff", "11"]) + hex.slice(at + 2 * chance.below(3));
}

/** The states after a question, as if the script had decided it on the caller's clock. */
function stepped(core, asked, states, now) {
  const after = states ? copied(core.policy.quotas, states) : unused(core.policy);
  if (asked.kind === CHECK) decide(core.policy, after, now, asked.cost, chargeIdOf({ ...asked, policy: core.policy }));
  if (asked.kind === REFUND) refund(core.policy, after, asked.extra, now, asked.cost);
  if (asked.kind === GRANT) thrown(() => grant(core.policy, after, now, asked.cost, asked.expires));
  if (asked.kind === BLOCK) block(core.policy, after, now, asked.extra);
  return after;
}

function garbled(chance, text) {
  const at = chance.below(text.length + 1);
  return text.slice(0, at) + chance.from(["", "9", ";", " ", "x", "-1", "99999999999999999999"]) + text.slice(at + chance.below(3));
}
