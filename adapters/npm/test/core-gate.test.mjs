// The gate, held to that of `tidegate-core`: random rules, requests and stores, of which both must say the same.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Gate, jsonLines } from "@tidegate/edge/gate";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { warnAt } from "@tidegate/edge/gate/warn-at";
import { SignJWT } from "jose";
import { Tokens } from "../modules/gate/token_signatures.js";
import { CHECK } from "../modules/question.js";
import { Chance, seeded, startedGate } from "./reference.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 3_000);
/** How many requests each set of rules gets. */
const REQUESTS = 40;
const NOW = 1_800_000_000_000;
const LAYER = Symbol.for("@tidegate/edge/layer");
const PARTS = Symbol.for("@tidegate/edge/parts");
const SECRET = new Uint8Array(32).fill(7);
const JWKS = { keys: [{ kty: "oct", k: Buffer.from(SECRET).toString("base64url") }] };

const engine = await startedGate();
const tokens = new Tokens(JWKS);

const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty"];
const EXACT = { class: "exact", ceiling: "limit", held: 0, accuracy: "exact: admitted = limit", algorithms: ALGORITHMS, max_quotas: 8, dimensions: "any", costs: true, charge_denied: true, idempotency: true, round_trips: 1 };
const STORES = [
  EXACT,
  EXACT,
  { ...EXACT, dimensions: "grouped" },
  { ...EXACT, class: "approximate", accuracy: "approximate: 0 <= admitted <= limit", dimensions: "one", idempotency: false },
  { ...EXACT, class: "per_location", ceiling: "limit x locations", accuracy: "per location: limit <= admitted <= limit x locations", algorithms: ["fixed_window"], max_quotas: 1, dimensions: "one", costs: false, charge_denied: false, idempotency: false },
];
const NAMES = ["main", "other"];

class Random extends Chance {
  pick(...choices) {
    return this.from(choices);
  }
}

/** What stores answer, by their number of quotas: the same for the same questions in the same order. */
class Script {
  constructor(seed) {
    this.chance = new Random(seed);
    this.asked = [];
  }

  answer(verb, store, name, keys, cost, now, token, ttlMs) {
    this.asked.push(JSON.stringify([verb, store, name, keys, cost, now, token ?? null, ttlMs ?? null]));
    const { chance } = this;
    if (chance.below(4) === 0) return chance.pick("unavailable", "unavailable", "timeout", "refused", "contended", "unknown_charge", "corrupt");
    const quotas = JSON.parse(name).quotas;
    const status = chance.pick(0, 0, 0, 1, 1, 2);
    const counts = Array.from({ length: quotas }, () => [chance.below(100), ...chance.pick([-1, -1], [chance.below(50), chance.pick(-1, chance.below(90_000))])]);
    const wait = status === 1 && chance.below(5) ? 1 + chance.below(60_000) : -1;
    return [status, chance.below(quotas), wait, status === 0 ? chance.below(2) * 20 : 0, now + chance.below(3), chance.below(5), chance.below(2), 0, ...counts.flat()];
  }
}

/** The gate of the core, and its stores. */
class Reference {
  constructor(stores, script, { platform, ipv6Prefix, trustTrueClientIp, sampleAllowed }) {
    this.gate = new engine.RulesGate(NAMES.join("\0"), platform, ipv6Prefix, trustTrueClientIp, 600_000);
    this.every = sampleAllowed;
    Object.assign(this, { stores, script, policies: [] });
  }

  /** Loads rules. What stores support is known of those that are used. */
  load(text, used) {
    this.gate.read("rules.json", text);
    for (const place of used) this.gate.store(place, ...capabilities(this.stores[place]));
    const { fields, policies } = JSON.parse(this.gate.load());
    this.fields = fields;
    for (const [, place, written] of policies) this.#policy(place, written);
    this.gate.seed(new Uint8Array(24), this.every);
  }

  async run(begins) {
    const caller = this.gate.caller();
    let said = begins(caller);
    while (said.startsWith("[")) said = await this.#answered(caller, JSON.parse(said));
    return said;
  }

  async check(request, given, explains) {
    return this.run((caller) => {
      ["peer", "subject", "apiKey", "key", "tier", "token", "ja4"].forEach((name, what) => given[name] !== undefined && caller.tell(what, given[name]));
      for (const [name, key] of Object.entries(given.keys ?? {})) caller.key(name, key);
      for (const [name, number] of Object.entries(given.limits ?? {})) caller.limit(name, number);
      caller.numbers(given.botScore ?? -1, given.estimate ?? given.cost ?? -1, given.estimate !== undefined, false);
      return caller.check(request.method, request.url, this.fields.map((name) => request.headers.get(name) ?? "\0").join("\n"), given.now, explains);
    });
  }

  #policy(place, written) {
    if (written) this.policies[place] = written;
    return this.policies[place];
  }

  async #answered(caller, [verb, ...rest]) {
    if (verb === "token") return caller.told("made");
    if (verb === "verify") {
      const found = await tokens.verify(rest[0], ["HS256"]).then((payload) => ({ payload }), ({ kind, message }) => ({ kind, message }));
      return found.payload === undefined ? caller.failed(found.kind, found.message) : caller.told(found.payload);
    }
    const [store, place, written, keys, cost, now, token, ttl] = rest;
    const policy = this.#policy(place, written);
    const answer = this.script.answer(verb, store, nameOf(policy), keys, cost < 0 ? null : cost, now, token ?? undefined, token === null || verb === "settle" ? undefined : ttl);
    return typeof answer === "string" ? caller.failed(answer, `it is ${answer}`) : caller.decided(Float64Array.from(answer));
  }
}

/** A policy as a text, from what the WebAssembly writes of it. */
function nameOf([name, chargeDenied, groupAt, placeByKey, quotas]) {
  return JSON.stringify({ name, chargeDenied, groupAt, placeByKey, all: quotas.map((quota) => [...quota]), quotas: quotas.length });
}

/** The same, from what the gate's TypeScript gives a limiter. */
function nameOfParts({ name, chargeDenied, groupAt, placeByKey, quotas, scopes }) {
  const all = quotas.map(({ algorithm, amount, span, refill, name, by }, nth) => [algorithm, amount, span, refill, name, by ?? "", scopes.split(",")[nth]]);
  return JSON.stringify({ name, chargeDenied, groupAt, placeByKey, all, quotas: quotas.length });
}

function capabilities(can) {
  const bits = (flags) => flags.reduce((bits, flag, place) => bits | (Number(flag) << place), 0);
  const numbers = [bits(ALGORITHMS.map((name) => can.algorithms.includes(name))), can.max_quotas, ["one", "grouped", "any"].indexOf(can.dimensions), bits([can.costs, can.charge_denied, can.idempotency]), can.round_trips, ["exact", "approximate", "per_location"].indexOf(can.class)];
  return [Uint32Array.from(numbers), can.ceiling];
}

/** A limiter that answers by a script. */
function limiterOf(store, can, script, { policy, leases }) {
  assert.ok(policy[PARTS]);
  const held = leases ? 2 * leases.slice : can.held;
  // A limiter decides by the policy that it is asked by, which may have other numbers than its own.
  const ask = async ({ kind, policy, keys, cost, now, token, extra }) => {
    const asked = [store, nameOfParts(policy.parts), keys, cost < 0 ? null : cost, now, token];
    const answer = kind === CHECK ? script.answer("check", ...asked, token === undefined ? undefined : extra) : script.answer("settle", ...asked);
    if (typeof answer === "string") throw [answer, `it is ${answer}`];
    return answer;
  };
  return { capabilities: { ...can, held }, [LAYER]: { ask } };
}

const SEGMENTS = ["api", "login", "a", "b", "A", "%61pi", "%2e", "..", ".", "", "x%2fy", "é", "{id}", "\\a", "a;b", "%zz", "a%20b"];
const HOSTS = ["example.com", "api.example.com", "a.b.example.com", "other.org", "EXAMPLE.com", "example.com:8080", "[::1]"];
/** Those of 192.0.2.0/28 and others, as they are, mapped, behind NAT64, by 6to4 and by Teredo, private ones, and what is no client's. */
const ADDRESSES = [
  ...["192.0.2.1", "192.0.2.77", "198.51.100.9", "10.0.0.1", "2001:db8::1", "2001:db8:1:2:3::4", "::ffff:192.0.2.1", "64:ff9b::c000:201", "64:ff9b::192.0.2.77"],
  ...["64:ff9b::198.51.100.9", "64:ff9b:1::192.0.2.1", "2002:c000:201::1", "2002:c633:6409:7::", "2001:0:4136:e378:8000:63bf:3fff:fdfe", "2002:a00:1::", "64:ff9b::10.0.0.1", "2001::f5ff:fffe"],
  ...["unknown", "2a06:98c0:3600::103", " 192.0.2.1 ", "192.0.2.1:80", "::", "0.0.0.0", "192.0.2.1, 198.51.100.9", "[64:ff9b::c000:201]:443"],
];
/** Parts of lists. Networks of embedded addresses are compared as they are written. */
const LISTED = [
  ...["192.0.2.0/28", "192.0.2.64/26", "198.51.100.9", "10.0.0.0/8", "2001:db8::/32", "::/0", "64:ff9b::/96", "64:ff9b::a00:0/104", "2002:c000:200::/40", "2001::/32", "::ffff:192.0.2.0/124"],
  ...["2a06:98c0:3600::103", "2002::/16", "sub:alice", "sub:bob", "sub:42", "sub:%C3%A9", "sub:x%20y", "sub:none"],
];
const PLATFORMS = {
  cloudflare: ["cf-connecting-ip"],
  vercel: ["x-vercel-forwarded-for", "x-real-ip"],
  netlify: ["x-nf-client-connection-ip"],
  spin: ["spin-client-addr", "true-client-ip"],
  fastly: [],
  direct: [],
};
const SECRETS = ["secret-1", "secret-2", "secret-3", "é", ""];

function anyQuota(chance) {
  const by = chance.pick(undefined, undefined, "ip", "global", "tenant", "org", "sender", "ja4", ["ip", "ja4"], ["tenant", "org", "sender"]);
  const span = chance.pick(1_000, 60_000, 1_500);
  const limit = 1 + chance.below(20);
  const quota = chance.pick(
    { algorithm: "fixed_window", limit, window_ms: span },
    { algorithm: "fixed_window", limit, window_ms: span },
    { algorithm: "sliding_window", limit, window_ms: span },
    { algorithm: "sliding_log", limit, window_ms: span },
    { algorithm: "token_bucket", capacity: limit, refill: 1 + chance.below(9), per_ms: span },
    { algorithm: "leaky_bucket", capacity: limit, refill: 1, per_ms: span },
    { algorithm: "concurrency", limit, lifetime_ms: span, ...(chance.below(3) === 0 && { returns_cost: true }) },
    { algorithm: "penalty", base_ms: span, factor: 2, cap_ms: span * 8 },
    { algorithm: "block", cap_ms: span },
  );
  const most = quota.limit ?? quota.capacity;
  const from = () => ({ limit_from: { ...chance.pick({ claim: "rpm" }, { claim: "/o/0/rpm" }, { application: "n" }), max: most + chance.below(30), ...(chance.below(2) && { min: 1 + chance.below(most) }) } });
  const warned = () => ({ warn_at: chance.pick([50], [80, 100], [1, 10, 25, 50, 75, 90, 99, 100]) });
  return { ...quota, ...(by && { by }), ...(most && chance.below(5) === 0 && from()), ...(most && chance.below(4) === 0 && warned()), ...(chance.below(6) === 0 && { name: chance.pick("a", "b", "c", "d") }) };
}

/** Limits of single keys. */
function anyOverrides(chance, hashes, limits) {
  const keys = ["sub:alice", "sub:bob", "ip:192.0.2.1", "ip:2001:db8:1:2::/64", "global", "org:o1", "t:1", "account:42", ...hashes.map((hash) => `key:${hash}`), "sub:alice%7Ct:1", "org:o1%7Cja4:unknown", "ip:192.0.2.1%7Cja4:t13d"];
  const numbers = (quotas) => Object.fromEntries([quotas.length === 1 ? ["limit", 1 + chance.below(40)] : [chance.pick("a", "b", "l0-1", "l1-2"), 1 + chance.below(40)]]);
  const of = () => Object.fromEntries(Object.keys(limits).filter(() => chance.below(2)).map((name) => [name, numbers(limits[name].quotas)]));
  return Object.fromEntries(Array.from({ length: 1 + chance.below(4) }, () => [chance.pick(...keys), of()]));
}

/** The tables of a file that say who senders are. */
function anySenders(chance, hashes) {
  const keys = hashes.map((hash) => `key:${hash}`);
  const likely = () => [...chance.pick([], [chance.pick(...keys)]), ...chance.pick([], [chance.pick("sub:alice", "sub:bob")])];
  const entries = () => [...Array.from({ length: chance.below(4) }, () => chance.pick(...LISTED)), ...likely()];
  const tiers = { [hashes[0]]: "pro", [hashes[1]]: chance.pick("free", "none") };
  return {
    ...(chance.below(3) && { api_keys: { header: "X-Api-Key", tiers, ...(chance.below(3) && { without_tier: hashes.slice(2, 4) }) } }),
    ...(chance.below(3) && { lists: { allow: entries(), deny: entries() } }),
  };
}

/** Rules that every store can decide by, for any request. */
function plainRules(chance, hashes) {
  const by = () => chance.pick({}, { by: "ip" }, { by: "org" }, { by: "tenant" }, { by: ["org", "ja4"] }, { by: ["sender", "tenant"] });
  const same = chance.pick(undefined, by(), by());
  const quotas = (limit) => [{ algorithm: "fixed_window", limit, window_ms: 60_000, ...(same ?? by()), ...(chance.below(4) === 0 && { warn_at: [30, 60, 100] }) }];
  const tiers = { pro: { quotas: quotas(50) }, free: chance.pick({ unlimited: true }, { quotas: quotas(2) }) };
  const rule = (path) => ({ ...path, limits: ["l0"], ...(chance.below(2) && { on_failure: "open" }), ...(chance.below(3) === 0 && { invalid_token: "refuse" }) });
  const given = (quota, from) => ({ ...quota, limit_from: { ...from, max: 40, min: 2 } });
  const [l0, l1] = [quotas(5), quotas(3)].map(([quota], nth) => [chance.below(2) ? given(quota, nth ? { application: "n" } : { claim: "rpm" }) : quota]);
  const limits = { l0: { quotas: l0, tiers }, l1: { quotas: l1 } };
  return {
    ...(chance.below(2) && { overrides: anyOverrides(chance, hashes, limits) }),
    dimensions: ["tenant"],
    ...anySenders(chance, hashes),
    tokens: { algorithms: ["HS256"], tier: "plan", keys: { org: "org" } },
    ...(chance.below(4) && { stores: anyStores(chance, limits) }),
    limits,
    rules: [rule(), rule({ path: "/a/*" }), { path: "/b/*", challenge: "/challenge" }, { path: "/login", limits: ["l1"] }],
  };
}

/** What is around a store. */
function anyStores(chance, limits) {
  const names = Object.keys(limits);
  const [one, current, other] = [chance.pick(NAMES[0], NAMES[0], ...NAMES), chance.pick(...names), chance.pick(...names)];
  const [backup] = NAMES.filter((name) => name !== one);
  const table = {
    ...(chance.below(2) && { deny_cache: chance.pick(true, true, false, { hold_ms: 1 + chance.below(9_000) }, { capacity: 1 + chance.below(3) }) }),
    ...(chance.below(2) && { fallback: chance.pick(backup, { store: backup }, { store: backup, percent: 1 + chance.below(100) }, { store: backup, at_most_ms: chance.below(2_000) }) }),
    ...(chance.below(3) && { near: { store: backup, limit: other } }),
    ...(chance.below(2) && { shadow: { [current]: other } }),
  };
  return { [one]: table };
}

function anyRules(chance, hashes) {
  if (chance.below(2)) return plainRules(chance, hashes);
  const quotas = () => Array.from({ length: 1 + chance.below(chance.pick(1, 1, 3)) }, () => anyQuota(chance));
  const limits = {};
  const count = 1 + chance.below(4);
  for (let nth = 0; nth < count; nth++) {
    limits[`l${nth}`] = {
      quotas: quotas(),
      ...(chance.below(5) === 0 && { charge_denied: true }),
      ...(chance.below(9) === 0 && { group_by: chance.pick("tenant", "ip", "sender", ["ip", "ja4"]) }),
      ...(chance.below(9) === 0 && { lease: chance.pick(true, false, { slice: 5 }, { lifetime_ms: 500 }, { grace: 2 }) }),
      ...(chance.below(2) && { tiers: Object.fromEntries(["pro", "free"].filter(() => chance.below(2)).map((tier) => [tier, chance.below(3) ? { quotas: quotas() } : { unlimited: true }])) }),
    };
  }
  const path = () => "/" + Array.from({ length: chance.below(4) }, () => chance.pick(...SEGMENTS.slice(0, 13))).join("/") + chance.pick("", "", "/*", "/");
  const rules = Array.from({ length: 1 + chance.below(6) }, () => ({
    ...(chance.below(2) && { path: path() }),
    ...(chance.below(4) === 0 && { host: chance.pick("example.com", "*.example.com", "*.b.example.com", "Other.org") }),
    ...(chance.below(4) === 0 && { methods: chance.pick(["GET"], ["POST", "PUT"], ["HEAD"], []) }),
    ...(chance.below(6) === 0 && { headers: ["X-A"] }),
    ...(chance.below(6) === 0 && { bot_score_below: chance.pick(1, 30, 255) }),
    ...(chance.below(8) ? { limits: Object.keys(limits).filter(() => chance.below(2)) } : { challenge: chance.pick("/challenge", "https://example.com/?a=b&c") }),
    ...(chance.below(5) === 0 && { cost: chance.below(5) }),
    ...(chance.below(7) === 0 && { estimate: 1 + chance.below(5) }),
    ...(chance.below(3) === 0 && { store: chance.pick(...NAMES) }),
    ...(chance.below(3) && { on_failure: chance.pick("open", "open", "closed") }),
    ...(chance.below(6) === 0 && { settle_within_ms: 1 + chance.below(5_000) }),
    ...(chance.below(4) === 0 && { invalid_token: chance.pick("refuse", "anonymous") }),
  }));
  return {
    ...(chance.below(4) === 0 && { overrides: anyOverrides(chance, hashes, limits) }),
    ...(chance.below(3) === 0 && { case_insensitive: true }),
    ...(chance.below(4) === 0 && { exempt_preflights: true }),
    ...(chance.below(4) === 0 && { stores: anyStores(chance, limits) }),
    ...(chance.below(4) && { dimensions: ["tenant"] }),
    ...anySenders(chance, hashes),
    tokens: { algorithms: ["HS256"], keys: { org: chance.pick("org", "/o/0/id") }, ...(chance.below(2) && { issuer: chance.pick("me", ["me", "you"]) }), ...(chance.below(3) === 0 && { audience: ["here"] }), ...(chance.below(2) && { tier: "plan" }), ...(chance.below(4) === 0 && { header: "x-token" }) },
    ...(chance.below(3) === 0 && { responses: { format: chance.pick("json", "problem"), draft_6_fields: chance.below(2) === 0, retry_after_ms: chance.below(2) === 0, payment_required: chance.below(2) === 0 } }),
    limits,
    rules,
  };
}

async function anyToken(chance) {
  if (chance.below(6) === 0) return chance.pick("x", "a.b.c", "ab,c", "");
  const good = { iss: "me", aud: chance.pick("here", undefined, undefined, undefined), sub: chance.pick("alice", "bob"), plan: chance.pick("pro", "free", "none", undefined), org: chance.pick("o1", undefined), exp: NOW / 1_000 + 60, rpm: chance.pick(7, 7, 30, 0, undefined, "7", 1.5, null) };
  if (chance.below(2)) return new SignJWT(good).setProtectedHeader({ alg: "HS256" }).sign(SECRET);
  const claims = { iss: chance.pick("me", "you", "them", ["me"], 5), aud: chance.pick(undefined, "here", ["here", "there"], "there"), sub: chance.pick("alice", "bob", "", undefined, 42), plan: chance.pick("pro", "free", "none", undefined), org: chance.pick("o1", 7, 1.5, "", undefined), o: [{ id: "o2", rpm: chance.pick(undefined, 9, -1, 2 ** 53, [], {}, true) }], exp: chance.pick(NOW / 1_000 + 60, NOW / 1_000 - 61, NOW / 1_000 - 59.5, undefined, "soon", 1e300), nbf: chance.pick(undefined, undefined, NOW / 1_000 + 59, NOW / 1_000 + 61.001, -5) };
  return new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(chance.below(10) ? SECRET : new Uint8Array(32));
}

async function anyRequest(chance, platform) {
  const headers = new Headers();
  for (const [name, fields] of Object.entries(PLATFORMS)) {
    // Those of other platforms are forged.
    const isOwn = name === platform;
    for (const field of fields) if (chance.below(8) < (isOwn ? 7 : 1)) headers.set(field, chance.pick(...ADDRESSES));
  }
  if (chance.below(2)) headers.set("x-api-key", Buffer.from(chance.pick(...SECRETS)).toString("latin1"));
  if (chance.below(4) === 0) headers.set("x-a", "1");
  if (chance.below(5) === 0) headers.set("host", chance.pick(...HOSTS, "\xff", "\xc3\xa9.org"));
  if (chance.below(2)) headers.set(chance.pick("authorization", "authorization", "x-token"), `${chance.pick("Bearer ", "Bearer ", "Bearer ", "bearer  ", "Basic ", "")}${await anyToken(chance)}`);
  const path = Array.from({ length: chance.below(5) }, () => chance.pick(...SEGMENTS)).join("/");
  const url = `https://${chance.pick(...HOSTS)}/${path}${chance.pick("", "", "/", "?q=/../x", "#f")}`;
  return { method: chance.pick("GET", "POST", "HEAD", "PUT"), url, headers };
}

function anyGiven(chance, platform) {
  const some = (name, ...values) => (chance.below(5) === 0 ? { [name]: chance.pick(...values) } : {});
  return {
    now: NOW + chance.below(1_000),
    ...(chance.below(8) < (platform === "direct" || platform === "fastly" ? 7 : 1) && { peer: chance.pick(...ADDRESSES) }),
    ...some("subject", "alice", "bob", "", "é"),
    ...some("apiKey", ...SECRETS),
    ...some("key", "account:42", "ip:1", "sub:x y"),
    ...some("tier", "pro", "free", "none", ""),
    ...some("token", "t1", "t2"),
    ...some("botScore", 0, 29, 30, 255),
    ...(chance.below(3) ? { keys: { tenant: chance.pick("t:1", "ü") } } : {}),
    ...(chance.below(6) === 0 ? { keys: { tenat: "x" } } : {}),
    ...chance.pick({}, {}, {}, { cost: chance.below(9) }, { estimate: 1 + chance.below(9) }),
  };
}

/** What a settled verdict has of a decision. The core says no more of it. */
function settledOf(verdict) {
  const { outcome, rule, decision } = toldOf(verdict, []);
  return { outcome, fields: {}, rule, decision };
}

/** A verdict of the gate, in the form of the core's. */
function toldOf(verdict, events) {
  const { outcome, rule, http, headers, charge, holdsSlots, error, binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, quotas } = verdict;
  const counts = quotas.flatMap(({ name, limit, remaining, resetAfterMs }) => [name, limit, remaining, resetAfterMs]);
  return {
    outcome,
    ...(http?.body && { status: http.status, body: http.body }),
    fields: headers,
    ...(rule !== undefined && { rule }),
    ...(decidedAtMs !== undefined && { decision: [binding, retryAfterMs, delayMs, decidedAtMs, origin, replayed, ...counts] }),
    ...(error && { error: [error.kind, error.message] }),
    ...(charge && { slots: holdsSlots, cost: charge.cost }),
    ...(events.length > 0 && { events: events.map(lineOf) }),
  };
}

/** A line of JSON for an event. Keys are hashed with a secret of each gate, and stores take another time. */
function lineOf(line) {
  return line.replace(/"key":"[\da-f]{16}"/, '"key":"hashed"').replace(/"latency_us":\d+/, '"latency_us":0');
}

/** How an explanation says that somebody is known or listed, for the count of what the requests have. */
const SAYINGS = ["while it is down", "denials cached for", "tried in place of", ", after ", "of a valid token, tier", "of a valid API key, tier", "verified by the application, tier", "deny has key:", "deny has sub:", "deny has 192.0.2.", "allow has key:", "allow has sub:", "token    invalid", "by an override", "from the claim", "the default without the claim", "from the application's number", "but at most", "but at least", "limit    unknown"];

describe("the gate", () => {
  test("decides, asks, explains and tells as the core does", async () => {
    const chance = new Random(SEED);
    const { createHash } = await import("node:crypto");
    const hashes = SECRETS.slice(0, 4).map((secret) => createHash("sha256").update(secret).digest("hex").slice(0, 32));
    const seen = { errors: 0 };
    const unseen = () => ["unlimited", "allowed", "denied", "never_admissible", "listed", "challenged", "invalid_token", "failed_open", "failed_closed", "warned", ...SAYINGS].find((outcome) => !seen[outcome]);
    // Some outcomes are rare, and need more steps.
    for (let step = 0; step < STEPS || (unseen() && step < 50 * STEPS); ) {
      const stores = NAMES.map(() => chance.pick(...STORES));
      const text = JSON.stringify(anyRules(chance, hashes), null, chance.below(2));
      const seed = chance.below(2 ** 30);
      const [scripts, events, used] = [[new Script(seed), new Script(seed)], [], new Set()];
      const platform = chance.pick(...Object.keys(PLATFORMS));
      const setting = { platform, ipv6Prefix: chance.pick(64, 64, 48, 56, 128), trustTrueClientIp: chance.below(3) === 0, sampleAllowed: chance.pick(1, 1, 3) };
      const reference = new Reference(stores, scripts[0], setting);
      const options = { ...setting, keys: JWKS, limits: limitsFromData, warnAt: warnAt(jsonLines((line) => events.push(line))), onError: () => undefined, onEvent: jsonLines((line) => events.push(line)), stores: Object.fromEntries(NAMES.map((name, place) => [name, (limit) => (used.add(place), limiterOf(place, stores[place], scripts[1], limit))])) };
      let gate;
      const made = errorOf(() => (gate = Gate.fromRules(text, options)));
      assert.deepEqual(made, errorOf(() => reference.load(text, used)), text);
      step += 1;
      if (made) {
        seen.errors += 1;
        continue;
      }
      assert.deepEqual(gate.warnings, JSON.parse(new engine.RulesGate("a", "cloudflare", 64, false, 0).read("rules.json", text)).warnings);
      for (let nth = 0; nth < REQUESTS; nth++, step++) {
        const [request, given] = [await anyRequest(chance, platform), anyGiven(chance, platform)];
        if (/"application": ?"n"/.test(text) && chance.below(3)) given.limits = { n: chance.pick(0, 1, 9, 20, 2 ** 53 - 1) };
        const about = `seed ${SEED}\n${JSON.stringify(setting)}\n${text}\n${JSON.stringify([request.method, request.url, [...request.headers], given])}`;
        const explained = await outcomeOf(() => reference.check(request, given, true));
        assert.deepEqual(await outcomeOf(() => gate.explain(request, given)), explained, about);
        for (const saying of SAYINGS) if (explained.includes(saying)) seen[saying] = (seen[saying] ?? 0) + 1;
        const expected = await outcomeOf(() => reference.check(request, given, false));
        const verdict = await gate.check(request, given);
        if (Array.isArray(expected)) {
          assert.deepEqual([verdict.error.kind, verdict.error.message], expected, about);
          continue;
        }
        const { hold, error, ...told } = JSON.parse(expected);
        // Explanations make no events, but the core's come with the next verdict.
        const wanted = { ...told, ...(told.events && { events: told.events.map((event) => lineOf(JSON.stringify(event))) }), ...(error && { error }) };
        assert.deepEqual(toldOf(verdict, events), wanted, about);
        for (const line of events) if (line.includes('"warning":')) seen.warned = (seen.warned ?? 0) + 1;
        // The warnings of a settlement come with the next verdict.
        events.length = 0;
        assert.equal(verdict.charge !== undefined, hold !== undefined, about);
        seen[verdict.outcome] = (seen[verdict.outcome] ?? 0) + 1;
        if (hold !== undefined) {
          const [cost, now] = [chance.pick(undefined, 0, 3, 30), NOW + 2_000];
          const settled = await outcomeOf(() => reference.run((caller) => caller.settle(hold, cost ?? -1, now)));
          const ours = await outcomeOf(async () => settledOf(cost === undefined ? await gate.release(verdict, { now }) : await gate.settle(verdict, { cost, now })));
          if (Array.isArray(settled)) assert.deepEqual(ours, settled, about);
          else assert.deepEqual(ours, { ...JSON.parse(settled), rule: verdict.rule }, about);
        }
        const unnamed = (asked) => asked.replace(/"[\da-f]{8}-[\da-f-]{27}"/, '"made"');
        assert.deepEqual(scripts[1].asked.map(unnamed), scripts[0].asked, about);
        for (const script of scripts) script.asked.length = 0;
      }
    }
    assert.equal(unseen(), undefined, `seed ${SEED}: ${JSON.stringify(seen)}`);
  });
});

function errorOf(act) {
  try {
    act();
    return undefined;
  } catch (thrown) {
    return Array.isArray(thrown) ? [thrown[0], said(thrown[1])] : [thrown.kind, said(thrown.message)];
  }
}

async function outcomeOf(act) {
  try {
    return await act();
  } catch (thrown) {
    return Array.isArray(thrown) ? [thrown[0], said(thrown[1])] : [thrown.kind, thrown.message];
  }
}

/** An error as the gate says it: the place of a wrong value has JavaScript's names. */
function said(message) {
  return message.replace(/^[\w.[\]]+: /, (place) => place.replace(/_(\w)/g, (_, letter) => letter.toUpperCase()));
}
