// Credits of a gate, sold and spent over HTTP, in memory and on a real redis-server, and what is wrong with a credit.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import http from "node:http";
import { after, test } from "node:test";
import { Gate, TidegateError } from "@tidegate/edge/gate";
import { balances } from "@tidegate/edge/gate/credits";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { Gate as TomlGate } from "@tidegate/edge/gate/toml";
import { usageOf } from "@tidegate/edge/gate/usage";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import express from "express";
import { Redis } from "ioredis";
import { redisServer } from "./servers.mjs";

const DAY = 86_400_000;
const NOW = 1_800_000_000_000;
const server = await redisServer();
const client = new Redis(server.url);
after(async () => {
  client.disconnect();
  await server.stop();
});

let named = 0;
const unlike = () => `p${(named += 1)}`;
const balanceOf = (more) => ({ algorithm: "balance", max: 1_000, ...more });
const gateOf = (rules, more) => Gate.fromRules(rules, { platform: "direct", onError: () => {}, credits: balances, stores: { default: (limit) => new InMemory(limit) }, ...more });
const left = ({ quotas }) => quotas.map(({ remaining }) => remaining);

const STORES = {
  memory: (limit) => new InMemory(limit),
  redis: (limit) => new OnRedis({ ...limit, client, deadlineMs: 20_000 }),
};

/** A shop on Express: a customer buys credits, and each request costs some. */
async function shop(t, store) {
  const api = unlike();
  const rules = {
    limits: { [api]: { quotas: [{ algorithm: "fixed_window", limit: 2, window_ms: 100 * 365 * DAY }, balanceOf({ covers: true })] } },
    responses: { payment_required: true },
    rules: [{ path: "/api/*", limits: [api] }],
  };
  const gate = gateOf(rules, { stores: { default: store } });
  const app = express();
  app.post("/paid", express.json(), async (req, res) => {
    const { user, units, order } = req.body;
    try {
      const { replayed, quotas } = await gate.grant({ limit: api, to: { subject: user }, units, token: order });
      res.json({ replayed, credits: quotas[1].remaining });
    } catch (error) {
      res.status(400).json({ kind: error.kind, message: error.message });
    }
  });
  app.use(limit(gate, { check: (req) => ({ subject: req.get("x-test-user"), cost: Number(req.get("x-test-cost") ?? 1) }) }));
  app.get("/api/items", (_req, res) => res.send("items"));
  const listening = http.createServer(app).listen(0, "127.0.0.1");
  await once(listening, "listening");
  t.after(() => (listening.closeAllConnections(), listening.close()));
  const url = `http://127.0.0.1:${listening.address().port}`;
  const ask = (user, cost = 1) => fetch(`${url}/api/items`, { headers: { "x-test-user": user, "x-test-cost": String(cost) } });
  const buy = async (user, units, order) => {
    const answer = await fetch(`${url}/paid`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ user, units, order }) });
    return { status: answer.status, ...(await answer.json()) };
  };
  return { gate, ask, buy };
}

for (const [name, store] of Object.entries(STORES)) {
  test(`${name}: what is sold over HTTP is spent over HTTP, and an empty balance is a 402`, async (t) => {
    const { ask, buy } = await shop(t, store);
    // Two are included. Then nothing is left, and nobody has bought anything.
    assert.deepEqual([(await ask("alice")).status, (await ask("alice")).status], [200, 200]);
    const refused = await ask("alice");
    assert.deepEqual([refused.status, (await refused.json()).error], [402, "rate_limited"]);
    assert.deepEqual(await buy("alice", 3, "order-1"), { status: 200, replayed: false, credits: 3 });
    assert.deepEqual(await buy("alice", 3, "order-1"), { status: 200, replayed: true, credits: 3 });
    assert.deepEqual([(await ask("alice", 2)).status, (await ask("alice", 2)).status, (await ask("alice")).status, (await ask("alice")).status], [200, 402, 200, 402]);
    // Another customer has none of it.
    assert.deepEqual([(await ask("bob", 2)).status, (await ask("bob")).status], [200, 402]);
    // The 402 says when what is included admits the request, and the most that a balance holds is no matter of credits.
    assert.ok(Number((await ask("bob")).headers.get("retry-after")) > 86_400);
    assert.equal((await ask("bob", 2_000)).status, 429);
    const { status, kind, message } = await buy("alice", 4, "order-1");
    assert.deepEqual([status, kind], [400, "token_reused"], message);
    assert.deepEqual(await buy("alice", 1_001, "order-2"), { status: 400, kind: "invalid", message: "units: the balance would pass its max; write at most 1000, or raise the max of the balance" });
  });

  test(`${name}: an order that is sent 50 times at once is granted once`, async (t) => {
    const { ask, buy } = await shop(t, store);
    const answers = await Promise.all(Array.from({ length: 50 }, () => buy("alice", 7, "order-1")));
    assert.equal(answers.filter(({ replayed }) => replayed === false).length, 1);
    assert.ok(answers.every(({ status, credits }) => status === 200 && credits === 7));
    const statuses = await Promise.all(Array.from({ length: 50 }, async () => (await ask("alice")).status));
    assert.deepEqual([200, 402].map((status) => statuses.filter((one) => one === status).length), [9, 41]);
  });

  test(`${name}: a grant is on the row that requests count by`, async () => {
    const hash = createHash("sha256").update("secret").digest("hex").slice(0, 32);
    const own = { tenant: "tenant:acme" };
    /** What a balance counts by, whom the credit is for, and what a request of the same sender has. */
    const cases = [
      ["sender", { subject: "alice" }, { subject: "alice", peer: "192.0.2.1" }],
      ["sender", { apiKey: "secret" }, { peer: "192.0.2.1" }, { "x-api-key": "secret" }],
      ["sender", { key: "room:7" }, { key: "room:7" }],
      // All addresses of a network are one client.
      ["sender", { address: "2001:db8::9" }, { peer: "2001:db8::7" }],
      ["ip", { address: "::ffff:192.0.2.1" }, { peer: "192.0.2.1", subject: "bob" }],
      ["ip", { address: "64:ff9b::c633:6409" }, { peer: "198.51.100.9" }],
      ["global", { subject: "nobody" }, { subject: "bob" }],
      ["tenant", { subject: "alice" }, { subject: "bob", keys: own }, {}, own],
      [["sender", "tenant"], { subject: "alice" }, { subject: "alice", keys: own }, {}, own],
    ];
    for (const [by, to, given, headers = {}, keys] of cases) {
      for (const beside of ["ip", by]) {
        const [api, burst] = [unlike(), unlike()];
        const rules = {
          dimensions: ["tenant"],
          api_keys: { header: "x-api-key", tiers: {}, without_tier: [hash] },
          limits: { [api]: { quotas: [balanceOf({ by })] }, [burst]: { quotas: [{ algorithm: "fixed_window", limit: 100, window_ms: 1_000, by: beside }] } },
          rules: [{ path: "/api/*", limits: [burst, api] }, { path: "/chat", limits: [api] }],
        };
        const gate = gateOf(rules, { stores: { default: store } });
        const credit = { limit: api, to, units: 6, token: "order", keys };
        const about = JSON.stringify([by, to, beside]);
        assert.ok((await gate.grant(credit)).quotas.some(({ limit, remaining }) => limit === 1_000 && remaining === 6), about);
        assert.equal((await gate.grant(credit)).replayed, true, about);
        const ask = async (path) => (await gate.check(new Request(`https://example.com${path}`, { headers }), { peer: "192.0.2.9", keys: own, ...given, cost: 3 })).fromBalance;
        for (const expected of [3, 3, 0]) assert.equal(await ask(expected === 3 && beside === "ip" ? "/api/items" : "/chat"), expected, about);
      }
    }
  });
}

test("units expire, and a token is forgotten", async () => {
  const api = unlike();
  const gate = gateOf({ limits: { [api]: { quotas: [balanceOf()] } }, rules: [{ limits: [api] }] });
  const credit = { limit: api, to: { subject: "alice" }, units: 6, token: "order", expires: new Date(NOW + 5_000), rememberMs: 1_000 };
  assert.deepEqual(left(await gate.grant({ ...credit, now: NOW })), [6]);
  assert.equal((await gate.grant({ ...credit, now: NOW + 999 })).replayed, true);
  assert.deepEqual(left(await gate.grant({ ...credit, now: NOW + 1_000 })), [12]);
  assert.deepEqual(left(await gate.grant({ ...credit, units: 1, token: "other", expires: undefined, now: NOW + 5_000 })), [1]);
});

test("a limit in several stores has a balance in each, and a grant names one", async () => {
  const api = unlike();
  const rules = { limits: { [api]: { quotas: [balanceOf()] } }, rules: [{ path: "/a", limits: [api], store: "one" }, { path: "/b", limits: [api], store: "two" }] };
  const gate = gateOf(rules, { stores: { one: STORES.memory, two: STORES.redis } });
  const credit = { limit: api, to: { subject: "bob" }, units: 6, token: "order" };
  await assert.rejects(gate.grant(credit), { kind: "invalid", field: "store", message: `store: of the limit "${api}": rules count in "one" and in "two"; name one with store` });
  await gate.grant({ ...credit, store: "two" });
  const passes = async (path) => (await gate.check(new Request(`https://example.com${path}`), { subject: "bob", peer: "192.0.2.1" })).allowed;
  assert.deepEqual([await passes("/a"), await passes("/b")], [false, true]);
});

test("a grant is by the limits of the sender's tier, and tells the limit of the sender's own", async () => {
  const hash = createHash("sha256").update("secret").digest("hex").slice(0, 32);
  const api = unlike();
  const rules = {
    api_keys: { header: "x-api-key", tiers: { [hash]: "pro" } },
    limits: { [api]: { quotas: [{ algorithm: "fixed_window", limit: 2, window_ms: 1_000 }], tiers: { pro: { quotas: [balanceOf({ max: 100 })] } } } },
    rules: [{ limits: [api] }],
  };
  const gate = gateOf(rules, { limits: limitsFromData });
  const credit = (to, more) => ({ limit: api, to, units: 6, token: "order", ...more });
  assert.deepEqual(left(await gate.grant(credit({ apiKey: "secret" }))), [6]);
  const none = `limit: of the limit "${api}": it has no balance`;
  await assert.rejects(gate.grant(credit({ subject: "bob" })), { message: `${none}; add a quota with algorithm = "balance"` });
  assert.deepEqual(left(await gate.grant(credit({ subject: "bob" }, { tier: "pro" }))), [6]);
  await assert.rejects(gate.grant(credit({ subject: "bob" }, { tier: "pre" })), { field: "tier", message: 'tier: "pre" is not a tier; did you mean "pro"? Write one of "pro"' });
  const window = { algorithm: "fixed_window", limit: 20, window_ms: DAY, name: "window" };
  const [both, overrides] = [{ limits: { [api]: { quotas: [window, balanceOf({ covers: true })] } }, rules: [{ limits: [api] }] }, { "sub:carol": { [api]: { limit: 5 } } }];
  const own = gateOf({ ...both, overrides }, { limits: limitsFromData });
  assert.deepEqual([left(await own.grant(credit({ subject: "carol" }))), left(await own.grant(credit({ subject: "dave" })))], [[5, 6], [20, 6]]);
});

test("while the store is down, a grant fails, and the store that decides in its place grants nothing", async () => {
  const api = unlike();
  let isDown = false;
  const rules = {
    limits: { [api]: { quotas: [{ algorithm: "fixed_window", limit: 100, window_ms: DAY }, balanceOf({ covers: true })] } },
    stores: { main: { fallback: { store: "backup", percent: 10 } } },
    rules: [{ limits: [api] }],
  };
  const down = await redisServer();
  const own = new Redis(down.url, { retryStrategy: null, maxRetriesPerRequest: 0 });
  own.on("error", () => {});
  const stores = { main: (limit) => new OnRedis({ ...limit, client: own, deadlineMs: 1_000 }), backup: (limit) => new InMemory(limit) };
  const gate = gateOf(rules, { stores });
  const grant = (token) => gate.grant({ limit: api, to: { subject: "alice" }, units: 50, token });
  const ask = (cost) => gate.check(new Request("https://example.com/"), { subject: "alice", peer: "192.0.2.1", cost });
  assert.deepEqual(left(await grant("order-1")), [100, 50]);
  await down.stop();
  for (let nth = 0; nth < 5; nth++) await assert.rejects(grant("order-2"), ({ kind }) => kind === "unavailable" || kind === "timeout");
  // The backup admits its share of what is included, and knows no balance.
  assert.deepEqual([(await ask(10)).outcome, (await ask(1)).outcome], ["allowed", "denied"]);
  for (let nth = 0; nth < 5; nth++) await assert.rejects(grant("order-2"), ({ kind }) => kind === "unavailable" || kind === "timeout");
  const denied = await ask(1);
  assert.deepEqual([denied.outcome, denied.origin], ["denied", "fallback"]);
  const usage = await usageOf(gate, new Request("https://example.com/"), { subject: "alice", peer: "192.0.2.1" });
  assert.deepEqual(usage.quotas.map(({ limit, remaining, origin }) => [limit, remaining, origin]), [[10, 0, "fallback"], [1_000, 0, "fallback"]]);
  own.disconnect();
});

test("a denial that is remembered ends with a grant", async () => {
  const api = unlike();
  const rules = { limits: { [api]: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 100 * 365 * DAY }, balanceOf({ covers: true })] } }, stores: { default: { deny_cache: true } }, rules: [{ limits: [api] }] };
  const gate = gateOf(rules, { stores: { default: STORES.redis } });
  const ask = async () => (await gate.check(new Request("https://example.com/"), { subject: "alice", peer: "192.0.2.1" })).origin;
  assert.deepEqual([await ask(), await ask(), await ask()], ["store", "store", "deny_cache"]);
  await gate.grant({ limit: api, to: { subject: "alice" }, units: 1, token: "order" });
  assert.deepEqual([await ask(), await ask(), await ask()], ["store", "store", "deny_cache"]);
  const usage = await usageOf(gate, new Request("https://example.com/"), { subject: "alice", peer: "192.0.2.1" });
  assert.deepEqual(usage.quotas.map(({ remaining }) => remaining), [0, 0]);
});

test("what is wrong with a credit says what to write", async () => {
  const errors = [];
  const rules = {
    dimensions: ["tenant"],
    limits: { api: { quotas: [balanceOf()] }, burst: { quotas: [{ algorithm: "fixed_window", limit: 100, window_ms: 1_000 }] }, own: { quotas: [balanceOf({ by: "ip" })] }, their: { quotas: [balanceOf({ by: "tenant" })] } },
    rules: ["api", "burst", "own", "their"].map((name) => ({ path: `/${name}`, limits: [name] })),
  };
  const gate = gateOf(rules, { onError: (event) => errors.push(event) });
  const alice = { subject: "alice" };
  const usual = { limit: "api", to: alice, units: 5, token: "order" };
  const cases = [
    [{ limit: "apy" }, 'limit: "apy" is not a limit of any rule; did you mean "api"? Write one of "api", "burst", "own", "their"'],
    [{ limit: "burst" }, 'limit: of the limit "burst": it has no balance; add a quota with algorithm = "balance"'],
    [{ limit: undefined }, "limit: missing; write the name of a limit"],
    [{ tier: "pro" }, 'tier: "pro" is not a tier; there is none'],
    [{ store: "other" }, 'store: there is no store "other"; write one of "default"'],
    [{ keys: { tenent: "a" } }, 'keys: "tenent" is not a dimension; did you mean "tenant"? Write one of "sender", "ip", "ja4", "global", "tenant"'],
    [{ keys: "tenant:a" }, "keys: not an object; write keys: { user, tenant }"],
    [{ to: { subject: "" } }, 'to: of the limit "api": the text is empty, which identifies nobody; write the sender\'s'],
    [{ to: { key: "" } }, 'to: of the limit "api": the text is empty, which identifies nobody; write the sender\'s'],
    [{ to: { subject: 5 } }, "to.subject: not a string"],
    [{ to: { subjekt: "a" } }, 'to.subjekt: unknown field "subjekt"; did you mean "subject"?'],
    [{ to: "alice" }, 'to: "alice" is not an object; write { subject, apiKey, key, address }'],
    [{ to: undefined }, "to: missing; write { subject }"],
    [{ to: {} }, "to: write one of { subject }, { apiKey }, { key } and { address }"],
    [{ to: { ...alice, apiKey: "a" } }, "to: write one of { subject }, { apiKey }, { key } and { address }"],
    [{ to: { address: "192.0.2" } }, 'to.address: "192.0.2" is not an address; write one such as "192.0.2.1"'],
    [{ to: { address: "0.0.0.0" } }, 'to: of the limit "api": 0.0.0.0 identifies no client; give the address of one'],
    [{ limit: "own" }, 'to: of the limit "own": it counts by the client\'s address; give an address'],
    [{ limit: "their" }, 'keys: of the limit "their": it counts by "tenant"; give that key with keys'],
    [{ token: " " }, 'token: empty; write a text that is unique to the grant, such as "order-1817"'],
    [{ token: undefined }, 'token: missing; write a text that is unique to the grant, such as "order-1817"'],
    [{ units: undefined }, "units: undefined is not a whole number; write one from 0 to 9007199254740991"],
    [{ units: 1.5 }, "units: 1.5 is not a whole number; write one from 0 to 9007199254740991"],
    [{ units: 0 }, "units: 0 is out of range; write a whole number from 1 to 2251799813685248"],
    [{ units: 1_001 }, "units: the balance would pass its max; write at most 1000, or raise the max of the balance"],
    [{ now: NOW, expires: NOW }, "expires: the time has passed; write a later one"],
    [{ unit: 5 }, 'unit: unknown field "unit"; did you mean "units"?'],
  ];
  for (const [changed, message] of cases) await assert.rejects(gate.grant({ ...usual, ...changed }), { name: "TidegateError", kind: "invalid", message, field: message.split(": ")[0] });
  assert.deepEqual(errors.map(({ operation, kind }) => [operation, kind]), cases.map(() => ["grant", "invalid"]));
  await assert.rejects(gate.grant(), { kind: "invalid", message: /^options: undefined is not an object/ });
  // Nothing was granted.
  assert.deepEqual(left(await gate.grant(usual)), [5]);
});

test("a gate that was made without the credits says what to import", async () => {
  const gate = Gate.fromRules({ limits: { api: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 1_000 }] } }, rules: [{ limits: ["api"] }] }, { platform: "direct", onError: () => {}, stores: { default: (limit) => new InMemory(limit) } });
  const missing = gate.grant({ limit: "api", to: { subject: "alice" }, units: 5, token: "order" });
  await assert.rejects(missing, (error) => error instanceof TidegateError && error.kind === "invalid" && error.field === "credits");
  await assert.rejects(missing, { message: 'credits: write the option credits: balances, of "@tidegate/edge/gate/credits"' });
});

test("rules whose denials are a 402 without a balance get a warning, in both languages of a file", () => {
  const quotas = (quota) => ({ limits: { api: { quotas: [{ algorithm: "fixed_window", limit: 1, window_ms: 1_000 }, ...quota] } }, rules: [{ limits: ["api"] }] });
  const warning = 'responses.payment_required: no limit has a balance, so no denial is a 402; add a quota with algorithm = "balance" or delete it';
  const warningsOf = (quota, responses) => gateOf({ ...quotas(quota), responses }).warnings;
  assert.deepEqual(warningsOf([], { payment_required: true }), [warning]);
  assert.deepEqual(warningsOf([], { payment_required: false }), []);
  assert.deepEqual(warningsOf([balanceOf()], { payment_required: true }), []);
  const text = `[limits]\napi.quotas = [{ algorithm = "fixed_window", limit = 1, window_ms = 1_000 }]\n[responses]\npayment_required = true\n[[rules]]\nlimits = ["api"]`;
  const toml = TomlGate.fromRules(text, { platform: "direct", onError: () => {}, stores: { default: (limit) => new InMemory(limit) } });
  assert.deepEqual(toml.warnings, [warning.replace("responses.payment_required", "rules.toml:4:20")]);
});
