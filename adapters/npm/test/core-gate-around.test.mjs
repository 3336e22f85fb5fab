// The limiters around the stores of a gate ask and answer what those of the core do.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EXACT, NATIVE } from "../modules/core/capabilities.js";
import { TidegateError } from "../modules/error.js";
import { composed } from "../modules/gate/combinators/compose.js";
import { ALGORITHMS, RulesPolicy } from "../modules/gate/rules_policy.js";
import { ask, CHECK, SETTLE } from "../modules/question.js";
import { Chance, seeded, startedGate } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 8_000);

const { RulesGate } = await startedGate();

const NAMES = ["main", "spare", "edge"];
const NOW = 1_800_000_000_000;
/** How long a gate can settle a charge unless its rules say otherwise. */
const SETTLE_WITHIN_MS = 600_000;

/** A quota of a rules file, and as the compiled rules have it. */
const quota = (algorithm, [amount, span, refill = 0], by) => ({ algorithm, amount, span, refill, by });

const LIMITS = {
  window: { quotas: [quota("fixed_window", [20, 10_000])] },
  "window-next": { quotas: [quota("sliding_log", [9, 5_000])] },
  burst: { quotas: [quota("token_bucket", [7, 1_000, 2]), quota("sliding_window", [150, 60_000])] },
  "burst-next": { quotas: [quota("leaky_bucket", [7, 1_000, 3])], charge_denied: true },
  charged: { quotas: [quota("fixed_window", [20, 10_000])], charge_denied: true },
  slots: { quotas: [quota("concurrency", [5, 700_000]), quota("fixed_window", [40, 10_000])] },
  "slots-next": { quotas: [quota("concurrency", [3, 20_000])] },
  several: { quotas: [quota("fixed_window", [20, 10_000]), quota("token_bucket", [30, 1_000, 3], "tenant")] },
  "several-next": { quotas: [quota("fixed_window", [20, 10_000], "tenant")] },
  grouped: { quotas: [quota("fixed_window", [20, 10_000]), quota("fixed_window", [30, 10_000], "tenant"), quota("penalty", [60_000, 1_000, 2], "tenant")], group_by: "tenant" },
  "grouped-next": { quotas: [quota("fixed_window", [10, 10_000]), quota("block", [60_000, 0], "tenant")], group_by: "tenant" },
  lent: { quotas: [quota("fixed_window", [200, 60_000])], lease: { slice: 5, lifetime_ms: 2_000, grace: 2 } },
  "lent-next": { quotas: [quota("fixed_window", [100, 60_000])] },
  flood: { quotas: [quota("sliding_window", [50, 1_000])] },
  slow: { quotas: [quota("fixed_window", [90, 60_000])] },
};

const FIELDS = [
  ...Array(3).fill({ amount: "limit", span: "window_ms" }),
  ...Array(2).fill({ amount: "capacity", span: "per_ms", refill: "refill" }),
  { amount: "limit", span: "lifetime_ms" },
  { amount: "cap_ms", span: "base_ms", refill: "factor" },
  { amount: "cap_ms" },
];

/** A limit in a rules file. */
function inFile({ quotas, ...limit }) {
  const written = ({ algorithm, by, ...numbers }) => {
    const fields = Object.entries(FIELDS[ALGORITHMS.indexOf(algorithm)]);
    return { algorithm, ...Object.fromEntries(fields.map(([from, to]) => [to, numbers[from]])), ...(by ? { by } : {}) };
  };
  return { ...limit, quotas: quotas.map(written) };
}

/** The policy of a limit, with the name of this or another one. */
function policyOf(limit, name = limit) {
  const { quotas, charge_denied: chargeDenied = false, group_by: groupBy } = LIMITS[limit];
  const names = quotas.map((_, nth) => (quotas.length === 1 ? limit : `${limit}-${nth + 1}`));
  const ready = quotas.map(({ algorithm, ...numbers }, nth) => ({ ...numbers, algorithm: ALGORITHMS.indexOf(algorithm), place: "", name: names[nth] }));
  return RulesPolicy.ofLimit(name, ready, chargeDenied, groupBy);
}

/** A policy and its lease, as the reference writes them. */
function written({ parts }, lease) {
  const scopes = parts.scopes.split(",");
  const quotas = parts.quotas.map(({ algorithm, amount, span, refill, name, by }, nth) => [algorithm, amount, span, refill, name, by ?? "", scopes[nth]]);
  return [parts.name, parts.chargeDenied, parts.groupAt, parts.placeByKey, quotas, lease ? [lease.slice, lease.lifetimeMs, lease.grace] : null];
}

/** What a store supports, as the reference takes it. */
function numbersOf(can) {
  const bits = (flags) => flags.reduce((bits, flag, place) => bits | (Number(flag) << place), 0);
  const algorithms = bits(ALGORITHMS.slice(0, 7).map((name) => can.algorithms.includes(name)));
  const flags = bits([can.costs, can.charge_denied, can.idempotency]);
  const classes = ["exact", "approximate", "per_location"];
  const numbers = [algorithms, can.max_quotas, ["one", "grouped", "any"].indexOf(can.dimensions), flags, can.round_trips, classes.indexOf(can.class)];
  return [Uint32Array.from(numbers), can.ceiling];
}

/** Both gates. The stores of each ask what the test answers. */
class Pair {
  constructor() {
    this.reference = new RulesGate(NAMES.join("\0"), "direct", 64, false, 0);
    this.known = [];
    this.can = NAMES.map(() => EXACT);
    this.composed = [];
    this.stores = NAMES.map((name, place) => {
      const can = () => this.can[place];
      const told = (question) => new Promise((resolve, reject) => this.told({ question, resolve, reject }));
      return {
        get capabilities() {
          return can();
        },
        ask: ({ kind, policy, keys, cost, now, token, extra, lease }) => {
          const asked = [name, written(policy, lease), keys, cost, now, token ?? null];
          return told(kind === CHECK ? ["check", ...asked, extra] : ["settle", ...asked]);
        },
      };
    });
  }

  /** Applies rules. `around` is a table of the file, and `chosen` has the limits of rules. */
  load({ around, chosen, can }) {
    const limits = Object.fromEntries(Object.entries(LIMITS).map(([name, limit]) => [name, inFile(limit)]));
    const rules = chosen.map((limit) => ({ name: limit, path: `/${limit}`, limits: [limit], store: "main" }));
    this.reference.read("rules.json", JSON.stringify({ dimensions: ["tenant"], stores: around, limits, rules }));
    can.forEach((can, place) => this.reference.store(place, ...numbersOf(can)));
    for (const [, place, policy] of JSON.parse(this.reference.load()).policies) if (policy) this.known[place] = policy;
    this.compose(around, chosen, can);
    this.limits = chosen.map((name) => {
      const policy = can[0].dimensions === "grouped" ? policyOf(name).placed : policyOf(name);
      return { name, policy, lease: leaseOf(name) };
    });
  }

  compose(around, chosen, can) {
    this.can = can;
    const all = Object.entries(around).map(([name, table]) => rulesOf(name, table));
    const leases = chosen.map(leaseOf).filter(Boolean);
    this.composed = composed(all, this.stores, NAMES, (place) => (place === 0 ? leases : []), this.composed);
  }

  get shadows() {
    return this.composed.flatMap(({ shadows }, place) => {
      return shadows.map(([limit, { counts }]) => [NAMES[place], limit, counts.bothAdmit, counts.bothDeny, counts.onlyProposalDenies, counts.onlyCurrentDenies, counts.failed]);
    });
  }

  callerWith(keys, token) {
    const caller = this.reference.caller();
    if (token !== undefined) caller.tell(5, token);
    caller.tell(3, keys[""]);
    if (keys.tenant) caller.key("tenant", keys.tenant);
    return caller;
  }

  /** Begins a check in both. */
  check({ name, policy, lease }, { keys, cost, now, token }) {
    const caller = this.callerWith(keys, token);
    caller.numbers(-1, cost, false, false);
    const extra = policy.holdsSlots || token === undefined ? 0 : SETTLE_WITHIN_MS;
    const run = () => this.composed[0].layer.ask({ ...ask(CHECK, policy, now), keys, cost, token, extra, lease });
    return this.begin(caller, () => caller.check("GET", `https://example.com/${name}`, "\0", now, false), run);
  }

  /** Begins a settlement in both. */
  settle({ name, policy }, { keys, cost, now, token }) {
    const caller = this.callerWith(keys, token);
    const hold = caller.hold("GET", `https://example.com/${name}`, "\0", now);
    const begins = () => caller.settle(hold, cost ?? -1, now);
    return this.begin(caller, begins, () => this.composed[0].layer.ask({ ...ask(SETTLE, policy, now), keys, token, cost: cost ?? -1 }));
  }

  begin(caller, begins, run) {
    const call = { caller };
    return this.step(call, begins, () => {
      run().then(
        (decision) => this.told({ end: decision }),
        ({ kind, message }) => this.told({ end: [kind, message] }),
      );
    });
  }

  /** Answers what a call has asked in both. */
  answer(call, answer) {
    const { caller, asked } = call;
    if (Array.isArray(answer)) return this.step(call, () => caller.decided(Float64Array.from(answer)), () => asked.resolve(answer));
    const { kind, message } = answer;
    return this.step(call, () => caller.failed(kind, message), () => asked.reject(new TidegateError(kind, message)));
  }

  /** Goes on with a call in both, which ask the same then, or end alike. Returns the call if it has asked. */
  async step(call, theirs, ours) {
    const asked = new Promise((resolve) => (this.told = resolve));
    ours();
    call.asked = await asked;
    const { question, end } = call.asked;
    assert.deepEqual({ question, end }, this.said(theirs));
    if (!question) call.caller.free();
    return question && call;
  }

  /** What the reference asks, or how its call ends. */
  said(theirs) {
    let text;
    try {
      text = theirs();
    } catch (thrown) {
      return { question: undefined, end: thrown };
    }
    const said = JSON.parse(text);
    if (!Array.isArray(said)) return { question: undefined, end: said.error ?? numbers(said) };
    const [verb, store, place, policy, ...rest] = said;
    if (policy) this.known[place] = policy;
    return { question: [verb, NAMES[store], this.known[place], ...rest], end: undefined };
  }
}

/** The decision of a verdict of the reference. */
function numbers({ outcome, decision: [binding, wait, delay, at, origin, replay, ...counts] }) {
  const facts = [["allowed", "denied", "never_admissible"].indexOf(outcome), binding, wait ?? -1, delay, at];
  const quotas = counts.filter((_, place) => place % 4 > 0).map((count) => count ?? -1);
  return [...facts, ["store", "deny_cache", "fallback", "near", "lease"].indexOf(origin), Number(replay), 0, ...quotas];
}

function leaseOf(limit) {
  const { lease } = LIMITS[limit];
  return lease && { slice: lease.slice, lifetimeMs: lease.lifetime_ms, grace: lease.grace };
}

/** The compiled rules of a store. */
function rulesOf(name, { deny_cache, fallback, near, shadow = {} }) {
  return {
    name,
    denyCache: deny_cache && { holdMs: deny_cache.hold_ms, capacity: deny_cache.capacity },
    fallback: fallback && { store: fallback.store, percent: fallback.percent, atMostMs: fallback.at_most_ms },
    near: near && { store: near.store, policy: policyOf(near.limit) },
    shadows: Object.entries(shadow).map(([current, limit]) => ({ limit, proposal: policyOf(limit, current) })),
  };
}

const USED = ["window", "burst", "charged", "slots", "several", "grouped", "lent"];
const GROUPED = { ...EXACT, class: "approximate", ceiling: "limit + in_flight", accuracy: "approximate: 0 <= admitted <= limit + in_flight", dimensions: "grouped" };
const WITHOUT_TOKENS = { ...EXACT, class: "approximate", ceiling: "limit x locations", accuracy: "approximate: 0 <= admitted <= limit x locations", idempotency: false, charge_denied: false };

/** Rules that the reference takes. */
function chosenRules(chance) {
  const main = chance.from([EXACT, EXACT, GROUPED]);
  const able = USED.filter((name) => main !== GROUPED || name !== "several");
  const chosen = [...new Set([chance.from(able), chance.from(able)])];
  const shadow = Object.fromEntries(chosen.filter((name) => LIMITS[`${name}-next`] && chance.once(2)).map((name) => [name, `${name}-next`]));
  const around = {
    ...(chance.once(2) ? { deny_cache: { hold_ms: chance.from([500, 3_000, 60_000]), capacity: chance.from([1, 2, 4, 8]) } } : {}),
    ...(chance.once(4) ? {} : { fallback: { store: "spare", percent: chance.from([1, 10, 50, 100]), at_most_ms: chance.from([0, 3_000, 60_000]) } }),
    ...(chance.once(2) ? { near: { store: "edge", limit: chance.from(["flood", "slow"]) } } : {}),
    ...(Object.keys(shadow).length > 0 && chance.once(2) ? { shadow } : {}),
  };
  const edge = around.near?.limit === "slow" ? chance.from([EXACT, NATIVE]) : EXACT;
  return { around: Object.keys(around).length > 0 ? { main: around } : {}, chosen, can: [main, chance.from([EXACT, EXACT, NATIVE, WITHOUT_TOKENS]), edge] };
}

const KINDS = ["contended", "refused", "unknown_charge", "token_reused", "invalid", "unsupported", "corrupt"];

/** What a store answers. */
function answered(chance, [verb, , [, , , , quotas], , , now], isDown) {
  if (isDown ? !chance.once(8) : chance.once(25)) return { kind: chance.from(["unavailable", "timeout"]), message: `no answer ${chance.below(9)}` };
  if (chance.once(verb === "settle" ? 3 : 12)) return { kind: verb === "settle" && chance.once(2) ? "unknown_charge" : chance.from(KINDS), message: `refused ${chance.below(9)}` };
  const status = chance.from([0, 0, 0, 1, 1, 2, 2]);
  const wait = status === 1 ? (chance.once(10) ? -1 : chance.below(chance.from([10, 2_000, 9_000, 9_000]))) : -1;
  const counts = () => [chance.below(50), chance.once(5) ? -1 : chance.below(9_000)];
  const origin = chance.once(8) ? chance.from(status === 0 ? [4] : [1, 4]) : 0;
  const facts = [status, chance.below(quotas.length), wait, status === 0 ? chance.below(3) : 0, now - chance.below(3), origin, Number(chance.once(6)), 0];
  return [...facts, ...quotas.flatMap(() => [1 + chance.below(50), ...(chance.once(5) ? [-1, -1] : counts())])];
}

test("the same is asked of the stores, and decided, for any order of checks, settlements, failures and reloads", async () => {
  const chance = new Chance(SEED);
  const pair = new Pair();
  const seen = {};
  let [now, rules, isDown, inFlight] = [NOW, chosenRules(chance), false, []];
  pair.load(rules);
  for (let step = 0; step < STEPS; step++) {
    try {
      now += chance.once(12) ? chance.below(chance.from([1_100, 4_000, 30_000])) : chance.below(40);
      if (chance.once(20)) now -= chance.below(chance.from([100, 3_000]));
      if (chance.once(isDown ? 25 : 60)) isDown = !isDown;
      let asking;
      if (inFlight.length > 0 && (inFlight.length > 2 || !chance.once(4))) {
        const [call] = inFlight.splice(chance.below(inFlight.length), 1);
        const answer = answered(chance, call.asked.question, isDown && call.asked.question[1] === "main");
        asking = await pair.answer(call, answer);
        if (!asking) {
          const { end } = call.asked;
          const told = typeof end[0] === "string" ? end[0] : `${["allowed", "denied", "never"][end[0]]} by ${end[5]}`;
          seen[told] = (seen[told] ?? 0) + 1;
        }
      } else if (chance.once(60)) {
        // Some of the rules come again, as new objects.
        rules = chance.once(2) ? rules : chosenRules(chance);
        pair.load(rules);
      } else {
        const limit = chance.from(pair.limits);
        const keys = Object.fromEntries(limit.policy.dimensions.map(({ name }) => [name, `${name || "user"}:${chance.below(2)}`]));
        const token = `token ${chance.below(6)}`;
        if (chance.once(3)) {
          asking = await pair.settle(limit, { keys, token, cost: chance.once(3) ? undefined : chance.below(9), now });
        } else {
          const hasToken = limit.policy.holdsSlots || chance.once(3);
          asking = await pair.check(limit, { keys, cost: chance.once(4) ? chance.below(60) : 1, now, token: hasToken ? token : undefined });
          if (!asking) seen["at once"] = (seen["at once"] ?? 0) + 1;
        }
      }
      if (asking) inFlight.push(asking);
      else assert.deepEqual(pair.shadows, JSON.parse(pair.reference.shadows()));
    } catch (error) {
      error.message = `step ${step} of ${JSON.stringify(rules)}: ${error.message}`;
      throw error;
    }
  }
  const wanted = ["at once", "allowed by 0", "denied by 0", "never by 0", "allowed by 2", "denied by 2", "never by 2", "denied by 3", "unavailable", "timeout", "unknown_charge", "refused"];
  for (const one of wanted) assert.ok(seen[one] > STEPS / 2_000, JSON.stringify(seen));
});

const WAITING = [1, 0, 5_000, 0, NOW, 0, 0, 0, 20, 0, 5_000];
const ADMITTED = [0, 0, -1, 0, NOW, 0, 0, 0, 20, 19, 5_000];

test("a denial that was on its way while a charge was settled is not remembered", async () => {
  const pair = new Pair();
  pair.load({ around: { main: { deny_cache: { hold_ms: 9_000, capacity: 8 } } }, chosen: ["window"], can: [EXACT, EXACT, EXACT] });
  const [window] = pair.limits;
  const asked = { keys: { "": "user:1" }, cost: 1, now: NOW };
  const before = await pair.check(window, asked);
  await pair.answer(await pair.settle(window, { ...asked, token: "token" }), ADMITTED);
  await pair.answer(before, WAITING);
  const after = await pair.check(window, asked);
  assert.ok(after);
  await pair.answer(after, WAITING);
  assert.equal(await pair.check(window, asked), undefined);
});

test("a charge that only the backup has is settled there, as long as its slot lives", async () => {
  const pair = new Pair();
  pair.load({ around: { main: { fallback: { store: "spare", percent: 50, at_most_ms: 60_000 } } }, chosen: ["slots"], can: [EXACT, EXACT, EXACT] });
  const [slots] = pair.limits;
  const admitted = [...ADMITTED, 20, 19, -1];
  const asked = { keys: { "": "user:1" }, cost: 1, now: NOW };
  for (const token of ["one", "two", "three"]) {
    const call = await pair.check(slots, { ...asked, token });
    await pair.answer(await pair.answer(call, { kind: "timeout", message: "no answer" }), admitted);
  }
  const spared = await pair.check(slots, { ...asked, token: "four" });
  assert.equal(spared.asked.question[1], "spare");
  await pair.answer(spared, admitted);
  const settled = await pair.settle(slots, { ...asked, token: "four", now: NOW + 500 });
  assert.equal(await pair.answer(settled, admitted), undefined);
  assert.deepEqual(settled.asked.end.slice(0, 6), [0, 0, -1, 0, NOW, 2]);
});

test("the same is wrong with what is around the stores", () => {
  const spare = { store: "spare", percent: 10, at_most_ms: 1_000 };
  const beyond = { ...EXACT, class: "approximate", ceiling: "limit + in_flight", accuracy: "approximate: limit <= admitted <= limit + in_flight" };
  const cases = [
    [{ mian: { fallback: spare } }],
    [{ zzz: {} }],
    [{ main: { fallback: { ...spare, store: "sparse" } } }],
    [{ main: { near: { store: "egde", limit: "flood" } } }],
    [{ main: { fallback: spare } }, [EXACT, beyond, EXACT]],
    [{ main: { near: { store: "edge", limit: "flood" } } }, [EXACT, EXACT, NATIVE]],
    [{ main: { shadow: { window: "window-next" } } }, [NATIVE, EXACT, EXACT]],
    [{ main: { shadow: { burst: "burst-next" } } }, [{ ...EXACT, charge_denied: false }, EXACT, EXACT]],
    [{ main: { shadow: { slots: "slots-next" } } }, [WITHOUT_TOKENS, EXACT, EXACT]],
    [{ main: { shadow: { several: "several" } } }, [GROUPED, EXACT, EXACT]],
    [{ main: { shadow: { several: "several" } } }, [{ ...EXACT, dimensions: "one" }, EXACT, EXACT]],
    [{ main: { shadow: { burst: "burst" } } }, [{ ...EXACT, max_quotas: 1 }, EXACT, EXACT]],
  ];
  const thrown = (run) => {
    try {
      run();
    } catch (error) {
      const { kind, message, field } = TidegateError.from(error);
      return { kind, message, field };
    }
    return undefined;
  };
  for (const [around, can = [EXACT, EXACT, EXACT]] of cases) {
    const theirs = thrown(() => new Pair().load({ around, chosen: USED, can }));
    assert.ok(theirs);
    assert.deepEqual(thrown(() => new Pair().compose(around, USED, can)), theirs, JSON.stringify(around));
  }
});
