// The gate: its rules are those of `fixtures/gate`, which the conformance suite runs. These tests are about what is JavaScript's own.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, beforeEach, describe, test } from "node:test";
import { analyticsEngine, Gate, jsonLines, openTelemetry, TidegateError } from "@tidegate/edge/gate";
import { limit as hono } from "@tidegate/edge/hono";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { limit as next } from "@tidegate/edge/next";
import { limit as node } from "@tidegate/edge/node";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Hono } from "hono";
import { Redis } from "ioredis";
import * as jose from "jose";
import { RulesPolicy } from "../modules/gate/rules_policy.js";
import { OwnStore } from "../modules/gate/stores.js";
import { ask as question, CHECK } from "../modules/question.js";
import { redisServer } from "./servers.mjs";

const NOW = 1_800_000_000_000;
const LAYER = Symbol.for("@tidegate/edge/layer");
const server = await redisServer();
const client = new Redis(server.url);
after(async () => {
  client.disconnect();
  await server.stop();
});
beforeEach(() => server.command("FLUSHALL"));

const memory = { default: (limit) => new Memory(limit) };
const redis = { default: (limit) => new OnRedis({ client, clock: "caller", minTtlMs: 3_600_000, deadlineMs: 20_000, ...limit }) };
/** A client that refuses every command, as one without a connection does. */
const down = { default: (limit) => new OnRedis({ client: { call: () => Promise.reject(new Error("connect ECONNREFUSED")) }, ...limit }) };

const window = (limit, more) => ({ algorithm: "fixed_window", limit, window_ms: 60_000, ...more });
let nth = 0;
/** A limit of a name of its own: limiters of one name count together. */
const limits = (...quotas) => ({ [`limit-${++nth}`]: { quotas } });
/** Rules of one limit for all requests. */
const rulesOf = (limits, more) => ({ limits, rules: [{ limits: Object.keys(limits), ...more }] });
const gateOf = (rules, options = {}) => Gate.fromRules(rules, { platform: "cloudflare", stores: memory, onError: () => undefined, ...options });
const request = (path = "/", { address = "192.0.2.1", headers = {}, ...init } = {}) =>
  new Request(`https://example.com${path}`, { headers: Array.isArray(headers) ? headers : { "cf-connecting-ip": address, ...headers }, ...init });
const check = (gate, sent = request(), options = {}) => gate.check(sent, { now: NOW, ...options });
const left = async (...asked) => {
  const verdict = await check(...asked);
  return verdict.quotas[verdict.binding]?.remaining;
};

describe("a rules file", () => {
  const error = (rules, options) => {
    try {
      gateOf(rules, options);
    } catch (thrown) {
      assert.ok(thrown instanceof TidegateError, String(thrown));
      return `${thrown.kind}: ${thrown.message}`;
    }
    return undefined;
  };

  test("errors have a position and the nearest right name", () => {
    const text = '{\n  "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 0, "window_ms": 1000 }] } }\n}';
    for (const [rules, message] of [
      ['{ "rules": [{ "limits": ["apo"] }] }', /^invalid: rules\.json:1:26: "apo" is not a limit; the file has none$/],
      [text, /^invalid: rules\.json:2:\d+: .*limit: 0 is out of range/],
      [text.replace('"fixed_window"', '"fixed_windw"'), /"fixed_windw" is not an algorithm; did you mean "fixed_window"\?/],
      ['{ "ruls": [] }', /^invalid: rules\.json:1:\d+: unknown field `ruls`; did you mean "rules"\?/],
      [`{ "limits": { "a": { "quotas": [{ "algorithm": "block", "cap_ms": 1, "name": 5 }] } } }`, /^invalid: rules\.json:1:\d+: expected a text, found a number$/],
      ["{", /^invalid: rules\.json:1:\d+: EOF/],
      ["", /^invalid: rules\.json:1:\d+: EOF/],
      [{ ruls: [] }, /^invalid: ruls: unknown field `ruls`; did you mean "rules"\?/],
      [{ "odd name": [] }, /^invalid: \["odd name"\]: unknown field `odd name`; /],
      [[], /^invalid: rules: expected a table, found a list$/],
      [{ rules: [{ path: "api", limits: [] }] }, /^invalid: rules\[0\]\.path: "api": is not a path; begin it with a slash/],
      [{ rules: [{ host: "example.com:8443", limits: [] }] }, /^invalid: rules\[0\]\.host: "example\.com:8443": is not a host; write one without a port/],
      [{ ...rulesOf(limits(window(1))), rules: [{ store: "mian", limits: [] }] }, /there is no store "mian"; did you mean "main"\?/],
      [7, /^invalid: rules: 7 is neither/],
    ]) {
      assert.match(error(rules, { stores: { default: memory.default, main: memory.default } }) ?? "", message);
    }
    assert.match(error("{", { name: "limits/edge.json" }), /limits\/edge\.json:1:/);
    assert.match(error("rules = []", { name: "rules.toml" }), /^invalid: name: rules\.toml: this Gate reads JSON; import the Gate of "@tidegate\/edge\/gate\/toml"/);
  });

  test("a wrong option is an error", () => {
    for (const [options, message] of [
      [{ plattform: "vercel" }, /plattform: unknown field "plattform"; did you mean "platform"/],
      [{ platform: "versel" }, /platform: unknown value "versel"; did you mean "vercel"/],
      [{ stores: {} }, /stores: none/],
      [{ stores: { default: new Memory({ platform: "direct", failMode: "open", policy: { name: "x", quotas: ["1 / s"] } }) } }, /stores.default: not a function/],
      [{ onEvent: "log" }, /onEvent: not a function/],
      [{ sampleAllowed: 0 }, /sampleAllowed: 0 is out of range/],
      [{ settleWithinMs: 0 }, /settleWithinMs: 0/],
      [{ ipv6Prefix: 12 }, /ipv6Prefix: 12 is out of range/],
    ]) {
      assert.match(error({}, options) ?? "", message);
    }
  });

  test("what a store lacks is an error that names the rule", () => {
    const windows = { default: (limit) => Object.assign(new Memory(limit), {}) };
    class Limited extends Memory {
      get capabilities() {
        return { ...super.capabilities, algorithms: ["fixed_window"], dimensions: "one", idempotency: false };
      }
    }
    windows.default = (limit) => new Limited(limit);
    const bucket = limits({ algorithm: "token_bucket", capacity: 1, refill: 1, per_ms: 1000 });
    assert.match(error(rulesOf(bucket, { name: "api" }), { stores: windows }), /^unsupported: rule "api": this store does not support token_bucket \(only fixed_window\)/);
    assert.match(error(rulesOf({ ...limits(window(1)), ...limits(window(2)) }, { name: "two" }), { stores: windows }), /rule "two": this store does not support several dimensions/);
    assert.match(error(rulesOf(limits(window(9)), { name: "llm", estimate: 5 }), { stores: windows }), /rule "llm": this store does not support settlements of an estimate/);
  });

  test("what is probably a mistake is a warning with its position", () => {
    const gate = gateOf('{ "limits": { "api": { "quotas": [{ "algorithm": "fixed_window", "limit": 1, "window_ms": 1000 }] } }, "rules": [] }');
    assert.match(gate.warnings.join(), /^rules\.json:1:\d+: no rule has the limit "api"/);
    gate.reload({ limits: { "api.v1": { quotas: [{ algorithm: "block", cap_ms: 1 }] } }, rules: [] });
    assert.deepEqual(gate.warnings, ['limits["api.v1"]: no rule has the limit "api.v1"; add it to one or delete it']);
    assert.deepEqual(gateOf(rulesOf(limits(window(1)))).warnings, []);
  });

  test("reload keeps the counts, and an error keeps the old rules", async () => {
    const [counted] = Object.keys(limits(window(3)));
    const rules = (limit) => rulesOf({ [counted]: { quotas: [window(limit)] } });
    for (const stores of [memory, redis]) {
      const gate = gateOf(rules(3), { stores });
      assert.deepEqual([await left(gate), await left(gate)], [2, 1]);
      gate.reload(rules(10));
      assert.equal(await left(gate), 7);
      assert.throws(() => gate.reload({ rules: [{ limits: ["nothing"] }] }), /^TidegateError: rules\[0\]\.limits\[0\]: "nothing" is not a limit/);
      assert.throws(() => gate.reload(""), /^TidegateError: rules.json:1:1: /);
      assert.throws(() => gate.reload("{}"), /^TidegateError: rules.json:1:1: missing field `rules`$/);
      assert.throws(() => gate.reload('{ "rules": [{ "store": "other" }] }'), /there is no store "other"/);
      assert.equal(await left(gate), 6);
    }
  });

  test("JSON that would change a prototype changes nothing", async () => {
    const rules = '{ "__proto__": { "polluted": true }, "rules": [] }';
    assert.match(error(rules), /unknown field `__proto__`/);
    assert.match(error(JSON.parse('{ "constructor": { "prototype": {} } }')), /unknown field `constructor`/);
    // These are names like any other.
    const gate = gateOf('{ "dimensions": ["__proto__"], "limits": { "proto": { "quotas": [{ "algorithm": "fixed_window", "limit": 2, "window_ms": 60000, "by": "__proto__" }] } }, "rules": [{ "limits": ["proto"] }] }');
    const keys = JSON.parse('{ "__proto__": "tenant:1" }');
    assert.deepEqual([await left(gate, request(), { keys }), await left(gate, request(), { keys }), await left(gate, request(), { keys })], [1, 0, 0]);
    assert.equal({}.polluted, undefined);
  });
});

describe("a decision", () => {
  test("explains itself", async () => {
    const gate = gateOf({ limits: { login: { quotas: [window(5, { by: "ip" })] } }, rules: [{ name: "login", path: "/login", methods: ["POST"], limits: ["login"] }] });
    assert.equal(await gate.explain(request("/login", { method: "POST" })), [
      "rule     login: POST /login",
      "sender   192.0.2.1",
      "cost     1",
      "limit    login: fixed_window of 5 in 60 s, by ip = ip:192.0.2.1",
      "store    the first",
      "failure  closed: a 503 while the store is down",
      "",
    ].join("\n"));
    assert.equal(await gate.explain(request("/")), "rule     none matches: not limited\n");
    await assert.rejects(gate.explain({}), TidegateError);
  });

  test("has the response for each outcome", async () => {
    const gate = gateOf({
      lists: { allow: ["192.0.2.7"], deny: ["198.51.100.0/24", "sub:mallory"] },
      limits: limits(window(1)),
      rules: [{ limits: [`limit-${nth}`] }, { path: "/human", challenge: "/challenge", limits: [] }, { path: "/export", cost: 5, limits: [`limit-${nth}`] }],
    });
    const outcomes = async (...asked) => {
      const { outcome, allowed, limited, http, response } = await check(gate, ...asked);
      assert.equal(response?.status, http?.status);
      return [outcome, allowed, limited, http?.status, http && JSON.parse(http.body).error];
    };
    assert.deepEqual(await outcomes(), ["allowed", true, false, undefined, undefined]);
    assert.deepEqual(await outcomes(), ["denied", false, true, 429, "rate_limited"]);
    assert.deepEqual(await outcomes(request("/export")), ["never_admissible", false, true, 429, "never_admissible"]);
    assert.deepEqual(await outcomes(request("/", { address: "198.51.100.9" })), ["listed", false, false, 403, "forbidden"]);
    assert.deepEqual(await outcomes(request("/"), { subject: "mallory" }), ["listed", false, false, 403, "forbidden"]);
    assert.deepEqual(await outcomes(request("/human")), ["challenged", false, false, 403, "challenge"]);
    assert.deepEqual(await outcomes(request("/", { address: "192.0.2.7" })), ["unlimited", true, false, undefined, undefined]);
    const verdict = await check(gate);
    assert.equal(verdict.rule, "/*");
    const response = verdict.onto(new Response("hello"));
    assert.equal(response.headers.get("x-ratelimit-limit"), "1");
    assert.equal(JSON.stringify(verdict).includes("192.0.2.1"), false);
  });

  test("a tier has its own limit, a key its own count, and an API key both", async () => {
    const secret = "a secret that no client guesses";
    const hash = Buffer.from(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(secret))).toString("hex").slice(0, 32);
    const [name] = Object.keys(limits(window(2)));
    const gate = gateOf({
      api_keys: { header: "x-api-key", tiers: { [hash]: "pro" } },
      limits: { [name]: { quotas: [window(2)], tiers: { pro: { quotas: [window(9)] }, staff: { unlimited: true } } } },
      rules: [{ limits: [name] }],
    });
    assert.equal(await left(gate, request("/", { headers: { "x-api-key": secret } })), 8);
    assert.equal(await left(gate, request(), { apiKey: secret, tier: "pro" }), 7);
    // A wrong key, and one that is sent twice, count by the address.
    assert.equal(await left(gate, request("/", { headers: { "x-api-key": "wrong" } })), 1);
    const twice = request("/", { headers: [["cf-connecting-ip", "192.0.2.1"], ["x-api-key", secret], ["x-api-key", secret]] });
    assert.equal(await left(gate, twice), 0);
    assert.equal((await check(gate, request(), { tier: "staff" })).outcome, "unlimited");
    assert.equal(await left(gate, request(), { key: "account:7" }), 1);
    assert.equal(await left(gate, request(), { key: "account:7", tier: "unknown" }), 0);
  });

  test("counts by the keys of the core, also those that need an encoding or a hash", async () => {
    const gate = gateOf({ dimensions: ["tenant"], ...rulesOf(limits(window(2, { by: "tenant" }))) });
    const tenants = ["tenant:a*b", "tenant:a%2Ab", "tenant:ü", `tenant:${"x".repeat(500)}`, `tenant:${"x".repeat(499)}y`, "\u0001ip:192.0.2.1"];
    for (const tenant of tenants) assert.deepEqual([await left(gate, request(), { keys: { tenant } }), await left(gate, request(), { keys: { tenant } })], [1, 0], tenant);
    // The limiter's own keys are the same ones.
    const [name] = [`limit-${nth}`];
    const limiter = new Memory({ platform: "cloudflare", failMode: "closed", policy: { name, quotas: [{ fixedWindow: { limit: 2, windowMs: 60_000 }, by: "tenant" }] } });
    for (const tenant of tenants) assert.equal((await limiter.limit({ tenant }, { now: NOW })).allowed, false, tenant);
    const missing = await check(gate);
    assert.deepEqual([missing.outcome, missing.error?.kind, missing.http?.status], ["failed_closed", "invalid", 503]);
    const undeclared = await check(gate, request(), { keys: { tenant: "tenant:1", user: "user:1" } });
    assert.match(undeclared.error?.message, /"user" is not a dimension that the rules declare/);
    assert.equal(undeclared.http?.status, 400);
  });

  test("the longest name of a limit with several quotas", async () => {
    const name = `limit-${"x".repeat(26)}`;
    const gate = gateOf(rulesOf({ [name]: { quotas: [window(3), window(5, { window_ms: 3_600_000 })] } }));
    const { quotas } = await check(gate);
    assert.deepEqual(quotas.map((quota) => quota.name), [`${name}-1`, `${name}-2`]);
  });

  test("a bot score selects a rule", async () => {
    const [bots, all] = [limits(window(1)), limits(window(5))].map(Object.keys);
    const gate = gateOf({ limits: { [bots]: { quotas: [window(1)] }, [all]: { quotas: [window(5)] } }, rules: [{ limits: [...all] }, { bot_score_below: 30, limits: [...bots] }] });
    assert.equal(await left(gate, request(), { botScore: 29 }), 0);
    assert.equal(await left(gate, request(), { botScore: 30 }), 4);
    assert.equal(await left(gate), 3);
  });

  test("hostile paths and headers do not evade a limit", async () => {
    const gate = gateOf({ limits: limits(window(3)), rules: [{ path: "/login", methods: ["POST"], limits: [`limit-${nth}`] }] });
    const hostile = ["/login", "/%6cogin", "/./login", "//login", "/x/../login", "/login/", "/login?x", "/login#x", "/%2e/login", "\\login"];
    const outcomes = new Set();
    for (const [place, path] of hostile.entries()) {
      const headers = { "x-forwarded-for": `203.0.113.${place}`, "x-real-ip": `203.0.113.${place}`, "x-original-url": "/", "x-http-method-override": "GET" };
      outcomes.add((await check(gate, request(path, { method: "POST", headers }))).outcome);
      if (place > 2) assert.equal((await check(gate, request(path, { method: "POST", headers }))).outcome, "denied", path);
    }
    assert.deepEqual([...outcomes], ["allowed", "denied"]);
    // Several addresses are none, and all such requests are one client.
    const unknown = gateOf(rulesOf(limits(window(2))));
    for (const address of ["192.0.2.1, 192.0.2.2", "198.51.100.1, 192.0.2.3", "junk"]) await check(unknown, request("/", { address }));
    assert.equal((await check(unknown, request("/", { address: "::1, junk" }))).outcome, "denied");
    assert.equal((await check(unknown, request("/", { address: "192.0.2.1" }))).outcome, "allowed");
  });

  // A pattern that backtracks takes minutes for these.
  test("a request is read in the time that its length takes", { timeout: 20_000 }, async () => {
    const rules = { ...rulesOf(limits(window(9_000))), tokens: { algorithms: ["HS256"], header: "x-token" }, api_keys: { header: "x-api-key", tiers: {} } };
    const gates = ["cloudflare", "spin", "vercel"].map((platform) => gateOf(rules, { platform, keys: { keys: [{ kty: "oct", k: "A".repeat(43) }] } }));
    const [long, spaces] = [20_000, `x${" ".repeat(20_000)}x`];
    for (const part of ["1", ":", ".", "a:1", "%", "%2e/", "/..", "//", "[", "é", "-"]) {
      const text = part.repeat(long / part.length);
      const headers = ["host", "cf-connecting-ip", "spin-client-addr", "x-real-ip", "x-token", "x-api-key"];
      for (const value of [spaces, encodeURIComponent(text), `Bearer ${spaces}`, `1.2.3.4${spaces}`]) {
        const sent = { method: "GET", url: `https://${encodeURIComponent(text)}/x`, headers: new Headers(headers.map((name) => [name, value])) };
        for (const gate of gates) assert.equal((await check(gate, sent)).outcome, "allowed");
      }
      const sent = { method: "GET", url: `https://example.com/${text}`, headers: new Headers() };
      for (const gate of gates) assert.equal((await check(gate, sent)).outcome, "allowed");
    }
  });

  test("headers need no more than `get`", async () => {
    const gate = gateOf({ limits: limits(window(1)), rules: [{ headers: ["x-a"], limits: [`limit-${nth}`] }] });
    const sent = (headers) => ({ method: "GET", url: "https://example.com/", headers: { get: (name) => headers[name] ?? null } });
    assert.equal((await check(gate, sent({ "x-a": "" }))).outcome, "allowed");
    assert.equal((await check(gate, sent({ "x-a": "1" }))).outcome, "denied");
    assert.equal((await check(gate, sent({}))).outcome, "unlimited");
  });

  test("a store that decides by another policy decides nothing", async () => {
    const policy = { name: "other", quotas: ["5 / s", "9 / min"] };
    const gate = gateOf(rulesOf(limits(window(1)), { on_failure: "open" }), { stores: { default: (limit) => new Memory({ ...limit, policy }) } });
    const { outcome, error, http } = await check(gate);
    assert.deepEqual([outcome, error.kind, http.status], ["failed_closed", "corrupt", 503]);
  });

  test("clients who choose which limits apply together do not make it keep ever more limiters", async () => {
    const made = [];
    const store = new OwnStore("main", (limit) => made.push(limit.policy.name) && new Memory(limit), "direct");
    const policy = (name) => RulesPolicy.ofLimit(name, [{ algorithm: 0, place: "", amount: 5, span: 60_000, refill: 0 }], false, undefined);
    const ask = (name) => store.ask({ ...question(CHECK, policy(name), NOW), keys: { "": "k" } });
    store.prepare(policy("of-the-rules"), undefined);
    for (let nth = 0; nth <= 1_024; nth++) await ask(`other-${nth}`);
    await ask("of-the-rules");
    assert.equal(made.length, 1_026);
    await ask("other-0");
    assert.deepEqual(made.slice(-2), ["other-1024", "other-0"]);
  });

  test("an option that is invalid is rejected, and never throws", async () => {
    const gate = gateOf(rulesOf(limits(window(100)), { on_failure: "open" }));
    for (const [sent, options] of [
      [request(), { cost: -1 }],
      [request(), { cost: 1.5 }],
      [request(), { botScore: 256 }],
      [request(), { subject: 7 }],
      [request(), { key: "\ud83d" }],
      [request(), { keys: { tenant: 7 } }],
      [request(), { token: " " }],
      [request(), { estimate: 0 }],
      [request(), { estimate: 1, cost: 1 }],
      [request(), { sbject: "alice" }],
      [request(), () => { throw new Error("secret"); }],
      [request(), Promise.reject(new Error("secret"))],
    ]) {
      const verdict = await gate.check(sent, options);
      assert.deepEqual([verdict.allowed, verdict.outcome, verdict.http.status, verdict.error.kind], [false, "failed_closed", 400, "invalid"]);
      assert.equal(verdict.http.body.includes("secret"), false);
    }
  });

  test("a burst of 200 admits exactly the limit", async () => {
    for (const stores of [memory, redis]) {
      const gate = gateOf(rulesOf({ ...limits(window(37)), ...limits(window(90, { by: "global" })) }), { stores });
      const burst = (address) => Promise.all(Array.from({ length: 200 }, () => check(gate, request("/", { address }))));
      const admitted = (verdicts) => verdicts.filter(({ allowed }) => allowed).length;
      assert.equal(admitted(await burst("192.0.2.1")), 37);
      assert.equal(admitted(await burst("192.0.2.2")), 37);
      assert.equal(admitted(await burst("192.0.2.3")), 90 - 74);
    }
  });
});

describe("settlements", () => {
  test("an estimate of the rule or the check is settled once", async () => {
    for (const stores of [memory, redis]) {
      const gate = gateOf(rulesOf(limits(window(100)), { estimate: 40 }), { stores });
      const verdict = await check(gate);
      assert.deepEqual([verdict.charge?.cost, verdict.quotas[0].remaining], [40, 60]);
      const settled = await gate.settle(verdict, { cost: 10, now: NOW });
      assert.deepEqual([settled.outcome, settled.quotas[0].remaining, settled.replayed], ["allowed", 90, false]);
      assert.equal((await gate.settle(verdict, { cost: 99, now: NOW })).replayed, true);
      const own = await check(gate, request(), { estimate: 20 });
      assert.equal(own.quotas[0].remaining, 70);
      await gate.refund(own, { now: NOW });
      assert.equal(await left(gate, request(), { cost: 0 }), 90);
      await assert.rejects(gate.settle(own, { cost: -1 }), /cost: -1 is not a whole number/);
    }
    const plain = gateOf(rulesOf(limits(window(1))));
    await assert.rejects(plain.settle(await check(plain), { cost: 1 }), /its check had no estimate/);
    const denied = await check(plain);
    assert.equal(await plain.settle(denied, { cost: 1 }), denied);
  });

  test("a slot is held until it is released, and a token charges once", async () => {
    for (const stores of [memory, redis]) {
      const gate = gateOf(rulesOf(limits({ algorithm: "concurrency", limit: 1, lifetime_ms: 60_000 })), { stores });
      assert.equal(gate.holdsSlots, true);
      const first = await check(gate);
      assert.deepEqual([first.holdsSlots, (await check(gate)).outcome], [true, "denied"]);
      await gate.release(first, { now: NOW });
      assert.equal((await check(gate, request(), { token: "one" })).outcome, "allowed");
      const again = await check(gate, request(), { token: "one" });
      assert.deepEqual([again.outcome, again.replayed], ["allowed", true]);
    }
  });

  test("of several stores that decide one after another, none stays charged after a denial", async () => {
    const [one, two] = [Object.keys(limits(window(5)))[0], Object.keys(limits(window(1)))[0]];
    const gate = gateOf(
      {
        limits: { [one]: { quotas: [window(5)] }, [two]: { quotas: [window(1)] } },
        // Servers read this path in two ways.
        rules: [{ path: "/a", limits: [one] }, { path: "/%61", store: "other", limits: [two] }, { path: "/b/*", store: "other", limits: [two] }],
      },
      { stores: { main: memory.default, other: memory.default } },
    );
    const odd = { method: "GET", url: "https://example.com/b/../a", headers: request().headers };
    assert.equal((await check(gate, odd, { token: "t1" })).outcome, "allowed");
    assert.equal((await check(gate, odd, { token: "t2" })).outcome, "denied");
    assert.equal(await left(gate, request("/a"), { cost: 0 }), 4);
  });
});

describe("a store that is down", () => {
  for (const [mode, outcome, status] of [["open", "failed_open", undefined], ["closed", "failed_closed", 503]]) {
    test(`fails ${mode}, with one event`, async () => {
      const [events, errors] = [[], []];
      const gate = gateOf(rulesOf(limits(window(1)), { name: "api", on_failure: mode }), { stores: down, onEvent: (event) => events.push(event), onError: (error) => errors.push(error) });
      const verdict = await check(gate);
      assert.deepEqual([verdict.outcome, verdict.http?.status, verdict.failedOpen], [outcome, status, mode === "open"]);
      assert.equal(verdict.error?.kind, "unavailable");
      assert.equal(events.length, 1);
      const { latencyUs, ...event } = events[0];
      assert.ok(latencyUs >= 0);
      assert.deepEqual(event, { atMs: NOW, rule: "api", policy: `limit-${nth}`, outcome, error: "unavailable" });
      assert.deepEqual(errors.map(({ kind, rule, failedOpen }) => [kind, rule, failedOpen]), [["unavailable", "api", mode === "open"]]);
      assert.equal(verdict.headers["x-tidegate-failed-open"], mode === "open" ? "unavailable" : undefined);
    });
  }

  test("a function that returns no limiter is an error that says what to write", () => {
    for (const [returned, what] of [[undefined, "undefined"], [null, "null"], [{}, "{}"], [Promise.resolve(), "a promise"]]) {
      assert.throws(() => gateOf(rulesOf(limits(window(1))), { stores: { default: () => returned } }), {
        kind: "invalid",
        field: "stores.default",
        message: `stores.default: returned ${what}, which is no limiter; write (limit) => new Tidegate({ ...limit })`,
      });
    }
  });
});

describe("limiters around stores, by the table `stores`", () => {
  /** A store that can be switched off. */
  const store = (Store = Memory, options = {}) => {
    const state = { isDown: false, calls: 0 };
    const make = (limit) => {
      const made = new Store({ ...options, ...limit });
      const layer = made[LAYER];
      const { ask } = layer;
      layer.ask = async (question) => {
        state.calls += 1;
        if (!state.isDown) return ask.call(layer, question);
        throw new TidegateError("unavailable", "switched off");
      };
      return made;
    };
    return { state, make };
  };
  const rules = (stores) => {
    const [api, proposal, flood] = [10, 3, 20].map((limit) => Object.entries(limits(window(limit)))[0]);
    return { stores: stores(api[0], proposal[0], flood[0]), limits: Object.fromEntries([api, proposal, flood]), rules: [{ limits: [api[0]] }] };
  };
  const origins = async (gate, count, now = NOW) => {
    const found = {};
    for (let nth = 0; nth < count; nth++) {
      const { allowed, origin } = await check(gate, request(), { now });
      const name = `${allowed ? "allowed" : "denied"} by ${origin}`;
      found[name] = (found[name] ?? 0) + 1;
    }
    return found;
  };

  test("another store replaces one that is down, and denials are cached", async () => {
    // Two stores of one process would count together.
    const main = store(OnRedis, { client, clock: "caller", minTtlMs: 3_600_000, deadlineMs: 20_000 });
    const gate = gateOf(rules(() => ({ main: { fallback: "memory", deny_cache: true } })), { stores: { main: main.make, memory: memory.default } });
    assert.deepEqual(await origins(gate, 20), { "allowed by store": 10, "denied by store": 1, "denied by deny_cache": 9 });
    main.state.isDown = true;
    assert.deepEqual(await origins(gate, 5, NOW + 60_000), { "allowed by fallback": 1, "denied by fallback": 4 });
    main.state.isDown = false;
    assert.deepEqual(await origins(gate, 12, NOW + 62_000), { "allowed by store": 10, "denied by store": 1, "denied by deny_cache": 1 });
  });

  test("it is explained which store decides while another is down, also if no rule names it", async () => {
    for (const [stores, failure] of [
      [{}, "closed: a 503"],
      [{ main: { fallback: { store: "memory", at_most_ms: 9_000 } } }, "memory decides for 9000 ms, then closed: a 503"],
    ]) {
      const gate = gateOf(rules(() => stores), { stores: { main: memory.default, memory: memory.default } });
      assert.ok((await gate.explain(request())).endsWith(`\nfailure  ${failure} while the store is down\n`));
    }
  });

  test("a near store is asked first, and a proposal is tried", async () => {
    const [main, near] = [store(), store()];
    const around = (api, proposal, flood) => ({ main: { near: { store: "near", limit: flood }, shadow: { [api]: proposal } } });
    const gate = gateOf(rules(around), { stores: { main: main.make, near: near.make } });
    assert.deepEqual(await origins(gate, 50), { "allowed by store": 10, "denied by store": 10, "denied by near": 30 });
    assert.deepEqual([near.state.calls, main.state.calls], [50, 40]);
    const [{ bothAdmit, onlyProposalDenies, bothDeny, failed, store: name }] = gate.shadows;
    assert.deepEqual([bothAdmit, onlyProposalDenies, bothDeny, failed, name], [3, 7, 10, 0, "main"]);
    assert.match(await gate.explain(request()), /store    the first, limit-\d+ tried in place of limit-\d+, after near by limit-\d+\n/);
    assert.deepEqual(gate.warnings, []);
  });

  test("a mistake is an error at load", () => {
    const wrong = (stores) => () => gateOf(rules(stores), { stores: { main: memory.default, memory: memory.default } });
    assert.throws(wrong(() => ({ main: { deny_cash: true } })), /stores\.main\.deny_cash: unknown field `deny_cash`; did you mean "deny_cache"/);
    assert.throws(wrong(() => ({ main: { fallback: "memroy" } })), /stores\.main\.fallback: there is no store "memroy"; did you mean "memory"/);
    assert.throws(wrong(() => ({ mian: { deny_cache: true } })), /stores: there is no store "mian"; did you mean "main"/);
  });
});

describe("events", () => {
  test("go to every sink, without keys and secrets", async () => {
    const [lines, points, counted, recorded, graces] = [[], [], [], [], []];
    const meter = {
      createCounter: (name) => ({ add: (value, labels) => counted.push([name, value, labels]) }),
      createHistogram: (name) => ({ record: (value, labels) => recorded.push([name, value > 0 || value === 0, labels]) }),
      createUpDownCounter: (name) => ({ add: (value, labels) => graces.push([name, value, labels]) }),
    };
    const sinks = [jsonLines((line) => lines.push(line)), analyticsEngine({ writeDataPoint: (point) => points.push(point) }), openTelemetry(meter), () => { throw new Error("ignored"); }];
    const gate = gateOf(rulesOf(limits(window(1)), { name: "api" }), { onEvent: sinks });
    for (let nth = 0; nth < 2; nth++) await check(gate, request(), { subject: "alice" });
    const [allowed, denied] = lines.map((line) => JSON.parse(line));
    assert.deepEqual([allowed.at_ms, allowed.rule, allowed.outcome, allowed.remaining, denied.outcome, denied.origin], [NOW, "api", "allowed", 0, "denied", "store"]);
    assert.match(allowed.key, /^[0-9a-f]{16}$/);
    assert.equal(allowed.key, denied.key);
    assert.equal(/alice|192\.0\.2/.test(lines.join()), false);
    assert.deepEqual(points.map(({ indexes, blobs, doubles }) => [indexes, blobs[0], doubles[0]]), [[["api"], "allowed", 1], [["api"], "denied", 1]]);
    assert.deepEqual(counted.map(([name, value, { outcome, origin }]) => [name, value, outcome, origin]), [["tidegate_requests_total", 1, "allowed", "store"], ["tidegate_requests_total", 1, "denied", "store"]]);
    assert.equal(recorded.length, 2);
    assert.deepEqual(graces, []);
  });

  test("each gate that gives a grace adds the largest one of its store", () => {
    const told = [];
    const instrument = () => ({ add() {}, record() {} });
    const createUpDownCounter = (name) => ({ add: (value, { store }) => told.push([name, value, store]) });
    const sink = openTelemetry({ createCounter: instrument, createHistogram: instrument, createUpDownCounter });
    const rules = (api, login) => {
      const limit = (grace) => ({ quotas: [{ algorithm: "fixed_window", limit: 9, window_ms: 1_000 }], lease: { grace } });
      return { limits: { api: limit(api), login: limit(login) }, rules: [{ limits: ["api"] }, { path: "/login", limits: ["login"] }] };
    };
    const stores = { main: (limit) => new OnRedis({ client, ...limit }) };
    const options = { stores, onEvent: [sink, () => undefined] };
    const [one] = [gateOf(rules(1, 3), options), gateOf(rules(2, 0), options)];
    one.reload(rules(1, 3));
    one.reload(rules(1, 0));
    assert.throws(() => one.reload({ ...rules(4, 0), limit: 1 }));
    one.reload(rules(0, 0));
    assert.deepEqual(told, [3, 2, -2, -1].map((more) => ["tidegate_lease_grace", more, "main"]));
  });

  test("a sample of the allowed requests says what it stands for", async () => {
    const events = [];
    const gate = gateOf(rulesOf(limits(window(20))), { onEvent: (event) => events.push(event), sampleAllowed: 10 });
    for (let nth = 0; nth < 22; nth++) await check(gate);
    assert.deepEqual(events.map(({ outcome, weight }) => [outcome, weight]), [["allowed", 10], ["allowed", 10], ["denied", undefined], ["denied", undefined]]);
  });
});

test("a refund of a part returns that part by each rule, whatever the rule charges", async () => {
  const [first, second] = [limits(window(20)), limits(window(20))];
  const [[one], [other]] = [Object.keys(first), Object.keys(second)];
  // Different stores cannot decide together.
  const rules = { limits: { ...first, ...second }, rules: [{ limits: [one], cost: 2 }, { path: "/login", limits: [other], cost: 6, store: "other" }] };
  const gate = gateOf(rules, { stores: { default: (limit) => new Memory(limit), other: (limit) => new Memory(limit) } });
  const used = async () => {
    const leftBy = async (path) => left(gate, request(path), { cost: 0 });
    return [20 - (await leftBy("/")), 20 - (await leftBy("/login"))];
  };
  // Servers read this path in two ways.
  const verdict = await check(gate, request("//login"), { token: "once" });
  const charged = await used();
  assert.deepEqual(charged, [2, 6]);
  await gate.refund(verdict, { cost: 1, now: NOW });
  assert.deepEqual(await used(), charged.map((units) => units - 1));
});

describe("tokens", async () => {
  const keys = JSON.parse(readFileSync(path.join(import.meta.dirname, "../../../core/jwt/tests/keys.json"), "utf8"));
  const secret = new TextEncoder().encode("a secret of more than thirty-two bytes");
  const set = { keys: [...["RS256", "ES256", "EdDSA"].map((name) => keys[name].jwk), { kty: "oct", kid: "hs", k: jose.base64url.encode(secret) }] };
  const NOW_S = NOW / 1_000;
  const claims = { sub: "alice", iss: "https://id.example.com/", aud: "api", exp: NOW_S + 300, nbf: NOW_S };
  const pair = await crypto.subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const own = { ...(await jose.exportJWK(pair.publicKey)), kid: "own" };
  const all = { keys: [...set.keys, own] };

  const rules = () => {
    const [api, tenant] = [limits(window(2)), limits(window(3))].map((limits) => Object.keys(limits)[0]);
    return {
      tokens: { algorithms: ["HS256", "RS256", "ES256", "EdDSA"], issuer: claims.iss, audience: ["api", "admin"], tier: "/plan/name", keys: { tenant: "org" } },
      limits: { [api]: { quotas: [window(2)], tiers: { pro: { quotas: [window(9)] } } }, [tenant]: { quotas: [window(3, { by: "tenant" })] } },
      rules: [{ path: "/api", limits: [api] }, { path: "/tenant", limits: [tenant] }, { path: "/strict", limits: [api], invalid_token: "refuse" }],
    };
  };
  const gate = (options) => gateOf(rules(), { keys: all, ...options });
  const part = (value) => jose.base64url.encode(typeof value === "string" ? value : JSON.stringify(value));
  const raw = async (header, payload) => new jose.CompactSign(new TextEncoder().encode(payload)).setProtectedHeader(header).sign(secret, { crit: { exp: true } });
  const signed = (payload, header = { alg: "HS256", kid: "hs" }) => raw(header, JSON.stringify(payload));
  const sent = (path, ...values) => request(path, { headers: [["cf-connecting-ip", "192.0.2.1"], ...values.map((value) => ["authorization", value])] });
  const bearer = (path, token) => sent(path, `Bearer ${token}`);
  const change = (name, value) => ({ ...claims, [name]: value });

  test("a valid token identifies its sender", async () => {
    const asked = gate();
    assert.equal(await left(asked, bearer("/api", await signed(claims))), 1);
    assert.equal(await left(asked, bearer("/api", await signed(claims, { alg: "HS256" }))), 0);
    const ec = await new jose.CompactSign(new TextEncoder().encode(JSON.stringify(change("sub", "bob")))).setProtectedHeader({ alg: "ES256", kid: "own" }).sign(pair.privateKey);
    assert.equal(await left(asked, bearer("/api", ec)), 1);
    for (const [alg, kid] of [["RS256", "RS256"], ["EdDSA", "EdDSA"]]) {
      const key = await jose.importPKCS8(`-----BEGIN PRIVATE KEY-----\n${await pkcs8(keys[kid].private, alg)}\n-----END PRIVATE KEY-----`, alg);
      const token = await new jose.CompactSign(new TextEncoder().encode(JSON.stringify(change("sub", alg)))).setProtectedHeader({ alg, kid: keys[kid].jwk.kid }).sign(key);
      assert.equal(await left(asked, bearer("/api", token)), 1, alg);
    }
    // The address has not been counted.
    assert.equal(await left(asked, sent("/api")), 1);
    assert.match(await asked.explain(bearer("/api", await signed(claims)), { now: NOW }), /sender   sub:alice, of a valid token/);
  });

  test("claims select the tier and the keys", async () => {
    const asked = gate();
    assert.equal(await left(asked, bearer("/api", await signed(change("plan", { name: "pro" })))), 8);
    assert.equal(await left(asked, bearer("/api", await signed(change("plan", { name: "unknown" })))), 0);
    const of = (sub, org) => signed({ ...claims, sub, org });
    assert.equal(await left(asked, bearer("/tenant", await of("a", "acme"))), 2);
    assert.equal(await left(asked, bearer("/tenant", await of("b", "acme"))), 1);
    // Numbers that JavaScript would round are two tenants.
    const big = (org) => raw({ alg: "HS256", kid: "hs" }, JSON.stringify({ ...claims, org: 0 }).replace('"org":0', `"org":${org}`));
    assert.equal(await left(asked, bearer("/tenant", await big("9007199254740992"))), 2);
    assert.equal(await left(asked, bearer("/tenant", await big("9007199254740993"))), 2);
    assert.equal(await left(asked, bearer("/tenant", await of("a", ["acme"]))), 2);
  });

  test("an invalid token gives what no token gives, and is refused where the rule says so", async () => {
    const good = await signed(claims);
    const [head, signature] = [good.slice(0, good.lastIndexOf(".")), good.slice(good.lastIndexOf(".") + 1)];
    const confused = await new jose.CompactSign(new TextEncoder().encode(JSON.stringify(claims))).setProtectedHeader({ alg: "HS256", kid: keys.RS256.jwk.kid }).sign(jose.base64url.decode(keys.RS256.jwk.n));
    const bad = [
      [`${part({ alg: "none" })}.${part(claims)}.`, "not a signed token"],
      [`${part({ alg: "None", kid: "hs" })}.${part(claims)}.`, "not a signed token"],
      [`${part({ kid: "hs" })}.${part(claims)}.`, "not a signed token"],
      [`${part({ alg: "HS256", kid: "hs" })}.${part(claims)}.`, ""],
      [confused, "no key"],
      [await new jose.CompactSign(new TextEncoder().encode(JSON.stringify(claims))).setProtectedHeader({ alg: "HS256", kid: "hs" }).sign(jose.base64url.decode(keys.RS256.jwk.n)), "signature"],
      [await signed(claims, { alg: "HS384", kid: "hs" }), "algorithm"],
      [await signed(claims, { alg: "HS256", kid: "other" }), "no key"],
      [await signed(claims, { alg: "HS256", kid: "hs", crit: ["exp"], exp: 1 }), "critical"],
      [`${part({ alg: "RS256", kid: "hs" })}.${part(claims)}.${signature}`, "no key"],
      [`${head}.${part("x".repeat(32))}`, "signature"],
      [`${head}.${signature.slice(0, 40)}`, "signature"],
      [`${good}=`, "not a signed token"],
      [`${good}.${signature}`, "not a signed token"],
      [head, "not a signed token"],
      [good.replace(".", ".."), "not a signed token"],
      [`${good} ${good}`, "not a signed token"],
      ["", "not a signed token"],
      ["..", "not a signed token"],
      [await signed(change("filler", "x".repeat(9_000))), "not a signed token"],
      [await raw({ alg: "HS256", kid: "hs" }, "[]"), "not a signed token"],
      [await raw({ alg: "HS256", kid: "hs" }, "text"), "not a signed token"],
      ...(await Promise.all(
        [
          ["exp", undefined, "never expires"],
          ["exp", NOW_S - 60, "expired"],
          ["exp", 0, "expired"],
          ["exp", "2099-01-01", "not a number"],
          ["exp", [NOW_S + 300], "not a number"],
          ["nbf", NOW_S + 61, "not valid yet"],
          ["nbf", 1e300, "not valid yet"],
          ["nbf", "now", "not a number"],
          ["iss", undefined, "lacks"],
          ["iss", "https://evil.example.com/", "issuer"],
          ["iss", 7, "lacks"],
          ["aud", undefined, "lacks"],
          ["aud", "other", "audience"],
          ["aud", [], "audience"],
          ["aud", { api: true }, "lacks"],
          ["sub", undefined, "no subject"],
          ["sub", "", "no subject"],
        ].map(async ([name, value, reason]) => [await signed(change(name, value)), reason]),
      )),
    ];
    for (const [token, reason] of bad) {
      const asked = gate();
      const refused = await check(asked, bearer("/strict", token));
      assert.deepEqual([refused.outcome, refused.http?.status, refused.http?.body], ["invalid_token", 401, '{"error":"invalid_token"}'], `${token} ${reason}`);
      assert.equal(refused.headers["www-authenticate"], 'Bearer error="invalid_token"');
      assert.ok((await asked.explain(bearer("/strict", token), { now: NOW })).includes(reason), `${reason}: ${await asked.explain(bearer("/strict", token), { now: NOW })}`);
      // Elsewhere it counts by the address, without a tier.
      assert.equal(await left(asked, bearer("/api", token)), 1);
      assert.equal(await left(asked, sent("/api")), 0);
    }
  });

  test("a request has one token, after the scheme", async () => {
    const asked = gate();
    const value = `Bearer ${await signed(claims)}`;
    assert.equal((await check(asked, sent("/strict", value, value))).outcome, "invalid_token");
    assert.equal((await check(asked, sent("/strict", value.replace("Bearer", "bearer")))).outcome, "allowed");
    for (const other of ["Basic YWxpY2U6c2VjcmV0", "Bearers x", "x"]) assert.notEqual((await check(asked, sent("/strict", other))).outcome, "invalid_token");
  });

  test("every change of one character makes a token invalid", async () => {
    const asked = gate();
    const token = await signed(claims);
    for (let place = 0; place < token.length; place++) {
      const changed = `${token.slice(0, place)}${token[place] === "A" ? "B" : "A"}${token.slice(place + 1)}`;
      assert.equal((await check(asked, bearer("/strict", changed))).outcome, "invalid_token", place);
    }
  });

  test("keys are checked, and may be found by a function", async () => {
    const jwk = (name, changes) => ({ ...keys[name].jwk, ...changes });
    for (const [wrong, message] of [
      [[], /no key for/],
      [[{ kty: "unknown" }], /no key for/],
      [[jwk("RS256", { use: "enc" })], /no key for/],
      [[jwk("RS256", { alg: "RS512" })], /no key for/],
      [[jwk("ES256", { crv: "P-384" })], /no key for/],
      [[jwk("RS256"), jwk("RS256")], /keys\[1\]: its kid/],
      [[jwk("RS256", { n: "AQAB" })], /2048/],
      [[jwk("RS256", { n: "%" })], /base64url/],
      [[jwk("ES256", { x: "AQAB" })], /32 bytes/],
      [[jwk("EdDSA", { x: "AQAB" })], /32 bytes/],
      [[{ kty: "oct", k: "aHVudGVyMg" }], /shorter than 32/],
    ]) {
      assert.throws(() => gate({ keys: { keys: wrong } }), (error) => message.test(error.message) && !error.message.includes("aHVudGVyMg"));
    }
    assert.throws(() => gateOf(rules()), /keys: missing, and the rules have tokens/);
    assert.throws(() => gate({ keys: "secret" }), /keys: "string"; write/);
    const local = gate({ keys: jose.createLocalJWKSet(all) });
    assert.equal(await left(local, bearer("/api", await signed(claims))), 1);
    for (const found of [() => undefined, () => { throw new Error("down"); }, () => Promise.reject(new Error("down"))]) {
      assert.equal((await check(gate({ keys: found }), bearer("/strict", await signed(claims)))).outcome, "invalid_token");
    }
  });
});

/** A private key of core/jwt/tests/keys.json in PKCS #8. */
async function pkcs8(der, alg) {
  const { createPrivateKey } = await import("node:crypto");
  const bytes = Buffer.from(der, "base64url");
  const key = alg === "RS256" ? createPrivateKey({ key: bytes, format: "der", type: "pkcs1" }) : createPrivateKey({ key: bytes, format: "der", type: "pkcs8" });
  return key.export({ format: "der", type: "pkcs8" }).toString("base64");
}

describe("middlewares take a gate", () => {
  const two = () => gateOf(rulesOf(limits(window(2)), { path: "/api/*" }));

  test("Node.js, over HTTP", async () => {
    const gate = gateOf({ limits: limits(window(2)), rules: [{ host: "api.example.com", path: "/api/*", limits: [`limit-${nth}`] }] }, { platform: "direct" });
    const limited = node(gate, { check: (req) => (req.headers["x-internal"] ? null : { botScore: 50 }) });
    const app = createServer((req, res) => limited(req, res, (error) => (error ? res.writeHead(500).end() : res.end("hello"))));
    app.listen(0, "127.0.0.1");
    await once(app, "listening");
    after(() => app.close());
    const url = `http://127.0.0.1:${app.address().port}`;
    const statuses = async (path, headers) => {
      const responses = [];
      for (let nth = 0; nth < 3; nth++) {
        const { request } = await import("node:http");
        const sent = request(`${url}${path}`, { headers: { host: "api.example.com", ...headers } }).end();
        const [response] = await once(sent, "response");
        response.resume();
        responses.push(response);
      }
      return responses;
    };
    const responses = await statuses("/api/x");
    assert.deepEqual(responses.map(({ statusCode }) => statusCode), [200, 200, 429]);
    assert.deepEqual(responses.map(({ headers }) => headers["x-ratelimit-remaining"]), ["1", "0", "0"]);
    assert.deepEqual((await statuses("/other")).map(({ statusCode }) => statusCode), [200, 200, 200]);
    assert.deepEqual((await statuses("/api/x", { "x-internal": "1" })).map(({ statusCode }) => statusCode), [200, 200, 200]);
    assert.deepEqual((await statuses("/api/x", { host: "other.example.com" })).map(({ statusCode }) => statusCode), [200, 200, 200]);
  });

  test("Next.js, and a response of the application to a denial", async () => {
    const proxy = next(two(), { denied: (verdict) => new Response(verdict.outcome, { status: 429 }) });
    const responses = [];
    for (let nth = 0; nth < 3; nth++) responses.push(await proxy(request("/api/x")));
    assert.deepEqual(responses.map(({ status }) => status), [200, 200, 429]);
    assert.equal(responses[0].headers.get("x-middleware-next"), "1");
    assert.equal(await responses[2].text(), "denied");
    const slots = gateOf(rulesOf(limits({ algorithm: "concurrency", limit: 1, lifetime_ms: 60_000 })));
    assert.throws(() => next(slots), /a proxy cannot release the slots/);
  });

  test("Hono: a refund, and a slot until the body has been sent", async () => {
    const app = new Hono();
    app.use("/cached", hono(gateOf(rulesOf(limits(window(1)))), { refund: ({ status }) => (status === 304 ? 1 : 0) }));
    app.get("/cached", (context) => context.body(null, 304));
    for (let nth = 0; nth < 3; nth++) {
      const work = [];
      const context = { waitUntil: (promise) => work.push(promise), passThroughOnException() {}, props: {} };
      assert.equal((await app.fetch(request("/cached"), {}, context)).status, 304);
      await Promise.all(work);
    }
    const slots = gateOf(rulesOf(limits({ algorithm: "concurrency", limit: 1, lifetime_ms: 60_000 })));
    const handler = reactRouter(slots, () => new Response("hello"));
    const first = await handler(request());
    assert.equal((await handler(request())).status, 429);
    await first.text();
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal((await handler(request())).status, 200);
  });

  test("without the address of the connection, the platform direct is a mistake of the application", async () => {
    const gate = gateOf(rulesOf(limits(window(9))), { platform: "direct" });
    const response = await reactRouter(gate, () => new Response("hello"))(new Request("https://example.com/"));
    assert.deepEqual([response.status, await response.json()], [500, { error: "limiter_misconfigured" }]);
    assert.equal((await gate.check(new Request("https://example.com/"))).outcome, "allowed");
  });
});

test("the fingerprint of the TLS handshake is Cloudflare's or the application's, and no header field's", async () => {
  const quotas = [{ algorithm: "fixed_window", limit: 5, window_ms: 60_000, by: ["ip", "ja4"] }];
  const rules = { limits: { pair: { quotas } }, rules: [{ limits: ["pair"] }] };
  const gate = Gate.fromRules(rules, { platform: "cloudflare", stores: { default: (limit) => new Memory(limit) } });
  const keyOf = async (cf, options) => {
    const request = new Request("https://example.com/", { headers: { "cf-connecting-ip": "192.0.2.1", "cf-ja4": "forged", ja4: "forged", "x-ja4": "forged" } });
    if (cf !== undefined) Object.defineProperty(request, "cf", { value: cf });
    return /by ip\+ja4 = (.*)/.exec(await gate.explain(request, options))[1];
  };
  const ja4 = "t13d1516h2_8daaf6152771_e5627efa2ab1";
  assert.equal(await keyOf({ botManagement: { score: 9, ja4 } }), `ip:192.0.2.1%7Cja4:${ja4}`);
  assert.equal(await keyOf({ botManagement: { ja4 } }, { ja4: "q13d" }), "ip:192.0.2.1%7Cja4:q13d");
  for (const cf of [undefined, null, {}, { botManagement: null }, { botManagement: {} }, { botManagement: { ja4: "" } }]) {
    assert.equal(await keyOf(cf), "ip:192.0.2.1%7Cja4:unknown");
  }
});
