// What a sender has used of its limits, over HTTP: in Express, Hono and a handler of the Fetch API.

import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import { after, test } from "node:test";
import { serve } from "@hono/node-server";
import { Gate } from "@tidegate/edge/gate";
import { limitsFromData } from "@tidegate/edge/gate/limits";
import { nodeUsageHandler, usageHandler, usageOf } from "@tidegate/edge/gate/usage";
import { limit as honoLimit } from "@tidegate/edge/hono";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/node";
import { Tidegate as Redis } from "@tidegate/edge/redis";
import { Tidegate as Native } from "@tidegate/edge/cloudflare-ratelimit";
import express from "express";
import { Hono } from "hono";
import { Redis as Client } from "ioredis";
import { SignJWT } from "jose";
import { redisServer } from "./servers.mjs";

const redis = await redisServer();
after(() => redis.stop());

const DAY = 86_400_000;
const SECRET = new Uint8Array(32).fill(7);
const KEYS = { keys: [{ kty: "oct", k: Buffer.from(SECRET).toString("base64url") }] };
let nth = 0;

/** Limits of the sender, of its address and of all, one with tiers and a number of the application, and one for `/usage` itself. Each test has counts of its own. */
function rulesOf(more = {}) {
  const id = (nth += 1);
  const window = (limit, fields) => ({ algorithm: "fixed_window", limit, window_ms: DAY, ...fields });
  return {
    id,
    rules: {
      lists: { deny: ["203.0.113.0/24"], allow: ["198.51.100.0/24"] },
      dimensions: ["tenant"],
      limits: {
        [`api-${id}`]: { quotas: [window(100, { name: "day" }), window(1_000, { name: "most", limit_from: { application: "most", max: 5_000 } })], tiers: { pro: { quotas: [window(500, { name: "day" })] } } },
        [`login-${id}`]: { quotas: [{ algorithm: "sliding_log", limit: 5, window_ms: DAY, by: "ip" }] },
        [`site-${id}`]: { quotas: [{ algorithm: "token_bucket", capacity: 9_000, refill: 1, per_ms: DAY, by: "global" }] },
        [`tenant-${id}`]: { quotas: [window(50, { by: "tenant" })] },
        [`usage-${id}`]: { quotas: [window(20)] },
        unused: { quotas: [window(7)] },
      },
      rules: [
        { path: "/api/*", limits: [`api-${id}`, `site-${id}`] },
        { path: "/login", limits: [`login-${id}`, `site-${id}`], on_failure: "open" },
        { path: "/tenant", limits: [`tenant-${id}`] },
        { path: "/usage", limits: [`usage-${id}`], on_failure: "open" },
      ],
      ...more,
    },
  };
}

const gateOf = (rules, more = {}) => Gate.fromRules(rules, { platform: "direct", stores: { default: (limit) => new Memory(limit) }, limits: limitsFromData, onError() {}, ...more });

/** Each quota's limit, what remains and what is used, by its policy, its name and its dimension. */
function told(text, id) {
  return JSON.parse(text).quotas.map(({ policy, quota, by, limit, remaining, used }) => [`${policy.replace(`-${id}`, "")}/${quota.replace(`-${id}`, "")}/${by}`, limit, remaining, used]);
}

/** The raw answer to a request, byte for byte. */
async function get(port, path, { method = "GET", headers = {} } = {}) {
  const [response] = await once(http.request({ host: "127.0.0.1", port, path, method, headers, agent: false }).end(), "response");
  let body = "";
  for await (const part of response) body += part;
  return { status: response.statusCode, headers: response.headers, body };
}

/** What each framework's application is, given a gate. The client's address and subject are in fields that only the tests send. */
const FRAMEWORKS = {
  express: async (t, gate) => {
    const check = (req) => ({ peer: req.get("x-test-peer"), subject: req.get("x-test-subject"), tier: req.get("x-test-tier") });
    const app = express();
    app.use(limit(gate, { check }));
    app.get("/usage", nodeUsageHandler(gate, { check }));
    app.use((_req, res) => void res.end("hello"));
    const server = app.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => (server.closeAllConnections(), server.close()));
    return server.address().port;
  },
  hono: async (t, gate) => {
    const check = ({ headers }) => ({ peer: headers.get("x-test-peer") ?? undefined, subject: headers.get("x-test-subject") ?? undefined, tier: headers.get("x-test-tier") ?? undefined });
    const usage = usageHandler(gate, { check });
    const app = new Hono();
    app.use(honoLimit(gate, { check: (request) => check(request) }));
    app.get("/usage", (context) => usage(context.req.raw, context));
    app.get("*", (context) => context.text("hello"));
    const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" });
    await once(server, "listening");
    t.after(() => (server.closeAllConnections(), server.close()));
    return server.address().port;
  },
};

for (const [name, start] of Object.entries(FRAMEWORKS)) {
  test(`${name}: a sender is told what it has used of every limit, and pays only for the question`, async (t) => {
    const { id, rules } = rulesOf();
    const port = await start(t, gateOf(rules));
    const client = { headers: { "x-test-peer": "192.0.2.1" } };
    for (let times = 0; times < 3; times++) assert.equal((await get(port, "/api/1", client)).status, 200);
    assert.equal((await get(port, "/login", client)).status, 200);
    for (let asked = 1; asked <= 3; asked++) {
      const { status, headers, body } = await get(port, "/usage", client);
      assert.deepEqual([status, headers["cache-control"], headers["content-type"]], [200, "no-store", "application/json"]);
      assert.equal(headers["x-ratelimit-remaining"], String(20 - asked));
      assert.deepEqual(told(body, id), [
        ["api/day/sender", 100, 97, 3],
        ["api/most/sender", 1_000, 997, 3],
        ["site/site/global", 9_000, 8_996, 4],
        ["login/login/ip", 5, 4, 1],
        ["usage/usage/sender", 20, 20 - asked, asked],
      ]);
      assert.ok(!body.includes("192.0.2.1") && !body.includes("ip:"), body);
    }
    assert.deepEqual(told((await get(port, "/usage", { headers: { "x-test-peer": "192.0.2.2" } })).body, id)[0], ["api/day/sender", 100, 100, 0]);
    // The identity and its tier are those that are counted, and without them, the address has its own.
    const alice = { headers: { ...client.headers, "x-test-subject": "alice", "x-test-tier": "pro" } };
    await get(port, "/api/1", alice);
    const { body } = await get(port, "/usage", alice);
    assert.deepEqual(told(body, id)[0], ["api/day/sender", 500, 499, 1]);
    assert.ok(!body.includes("alice") && !body.includes("most"), body);
    assert.deepEqual(told((await get(port, "/usage", client)).body, id)[0], ["api/day/sender", 100, 97, 3]);
    // Those on lists, and other methods.
    const denied = await get(port, "/usage", { headers: { "x-test-peer": "203.0.113.9" } });
    assert.deepEqual([denied.status, denied.body], [403, '{"error":"forbidden"}']);
    const allowed = await get(port, "/usage", { headers: { "x-test-peer": "198.51.100.9" } });
    assert.deepEqual([allowed.status, allowed.body], [200, '{"quotas":[]}']);
    assert.equal((await get(port, "/usage", { ...client, method: "HEAD" })).body, "");
  });
}

test("other methods, a listed sender and an invalid token learn nothing, also without the gate before it", async () => {
  const { rules } = rulesOf({ tokens: { algorithms: ["HS256"] } });
  const refusing = { ...rules, rules: rules.rules.map((rule) => ({ ...rule, invalid_token: "refuse" })) };
  const [lax, strict] = [gateOf(rules, { keys: KEYS }), gateOf(refusing, { keys: KEYS })];
  const ask = (gate, { peer = "192.0.2.1", ...init } = {}) => usageHandler(gate, { check: () => ({ peer }) })(new Request("https://example.com/usage", init));
  const post = await ask(lax, { method: "POST" });
  assert.deepEqual([post.status, post.headers.get("allow")], [405, "GET, HEAD"]);
  const denied = await ask(lax, { peer: "203.0.113.9" });
  assert.deepEqual([denied.status, await denied.text(), denied.headers.get("cache-control")], [403, '{"error":"forbidden"}', "no-store"]);
  const forged = { headers: { authorization: "Bearer a.b.c" } };
  const invalid = await ask(strict, forged);
  assert.deepEqual([invalid.status, await invalid.text(), invalid.headers.get("www-authenticate")], [401, '{"error":"invalid_token"}', 'Bearer error="invalid_token"']);
  // Where no rule refuses it, it is told what its address has, as it is counted.
  await lax.check(new Request("https://example.com/api/1", forged), { peer: "192.0.2.1" });
  const { quotas } = await (await ask(lax, forged)).json();
  assert.deepEqual([quotas[0].remaining, quotas[0].used], [99, 1]);
  const token = await new SignJWT({ sub: "alice" }).setProtectedHeader({ alg: "HS256" }).setExpirationTime("1h").sign(SECRET);
  const own = await (await ask(strict, { headers: { authorization: `Bearer ${token}` } })).json();
  assert.equal(own.quotas[0].used, 0);
});

test("the application's keys and numbers are those that are counted", async () => {
  const { id, rules } = rulesOf();
  const gate = gateOf(rules);
  const given = { subject: "alice", peer: "192.0.2.1", limits: { most: 2_000 } };
  const request = new Request("https://example.com/api/1");
  await gate.check(request, given);
  const { quotas } = await usageOf(gate, request, given);
  assert.deepEqual([quotas[1].quota, quotas[1].limit, quotas[1].used, quotas[1].resetAfterMs > 0], ["most", 2_000, 1, true]);
  assert.ok(!quotas.some(({ by }) => by === "tenant"));
  const { limits, ...others } = given;
  const withTenant = await usageOf(gate, request, { ...others, keys: { tenant: "tenant:acme" } });
  assert.deepEqual(withTenant.quotas.filter(({ by }) => by === "tenant").map(({ policy, remaining }) => [policy, remaining]), [[`tenant-${id}`, 50]]);
  const wrong = await usageOf(gate, request, { limits: { moost: 5 } });
  assert.deepEqual([wrong.response.status, /did you mean|most/.test(wrong.error.message)], [400, true]);
});

test("without the address that is counted it is a 500, and a store that is down is a 503 also where rules open", async () => {
  const { rules } = rulesOf();
  const alone = await usageHandler(gateOf(rules), { check: () => ({ peer: null }) })(new Request("https://example.com/usage"));
  assert.equal(alone.status, 500);
  const client = new Client("redis://127.0.0.1:1", { lazyConnect: true, enableOfflineQueue: false, maxRetriesPerRequest: 0, retryStrategy: null });
  client.on("error", () => {});
  const down = gateOf(rules, { stores: { default: (limit) => new Redis({ client, ...limit }) } });
  const given = { peer: "192.0.2.1" };
  assert.equal((await down.check(new Request("https://example.com/login"), given)).outcome, "failed_open");
  const answer = await usageHandler(down, { check: () => given })(new Request("https://example.com/usage"));
  assert.deepEqual([answer.status, await answer.text(), answer.headers.get("cache-control")], [503, '{"error":"limiter_unavailable","kind":"unavailable"}', "no-store"]);
});

test("a store that cannot peek is an error when the handler is made", () => {
  const limits = { native: { quotas: [{ algorithm: "fixed_window", limit: 10, window_ms: 60_000 }] } };
  const binding = { limit: async () => ({ success: true }) };
  const gate = gateOf({ limits, rules: [{ name: "all", limits: ["native"] }] }, { platform: "cloudflare", stores: { default: (limit) => new Native({ binding, ...limit }) } });
  const message = /^rule "all": this store does not support a peek, which tells what is used; count this rule's limits in one that does$/;
  for (const make of [usageHandler, nodeUsageHandler]) assert.throws(() => make(gate), { kind: "unsupported", message });
});

test("over a real redis, what one store decides together is one trip, more than eight quotas are two, and the counts stay", async () => {
  const { rules } = rulesOf();
  const client = new Client(redis.url);
  let trips = 0;
  const counting = { evalsha: (...words) => ((trips += 1), client.evalsha(...words)), eval: (...words) => ((trips += 1), client.eval(...words)), call: (...words) => ((trips += 1), client.call(...words)) };
  const gate = gateOf(rules, { stores: { default: (limit) => new Redis({ client: counting, ...limit }) } });
  const given = { peer: "192.0.2.1" };
  for (let times = 0; times < 3; times++) await gate.check(new Request("https://example.com/api/1"), given);
  const ask = async (gate) => {
    await usageOf(gate, new Request("https://example.com/usage"), given);
    trips = 0;
    const usage = await usageOf(gate, new Request("https://example.com/usage"), given);
    return [trips, usage.quotas.map(({ used }) => used)];
  };
  assert.deepEqual(await ask(gate), [1, [3, 3, 3, 0, 0]]);
  assert.deepEqual(await ask(gate), [1, [3, 3, 3, 0, 0]]);
  const many = Object.fromEntries(Array.from({ length: 9 }, (_, place) => [`many-${place}`, { quotas: [{ algorithm: "fixed_window", limit: 10, window_ms: DAY }] }]));
  const nine = gateOf({ limits: many, rules: Object.keys(many).map((name) => ({ path: `/${name}`, limits: [name] })) }, { stores: { default: (limit) => new Redis({ client: counting, ...limit }) } });
  assert.deepEqual(await ask(nine), [2, Array(9).fill(0)]);
  client.disconnect();
});

test("the snippet of the README answers as it says", async () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  const section = readme.split("\n### What a sender has used\n")[1].split("\n### ")[0];
  const [, code] = /```js\n(.*?)```/s.exec(section);
  const [, body] = /The response is `(.*?)`/.exec(section);
  const quota = { algorithm: "fixed_window", limit: 1_000, window_ms: DAY, name: "daily" };
  const gate = gateOf({ limits: { api: { quotas: [quota] } }, rules: [{ limits: ["api"] }] });
  for (let times = 0; times < 3; times++) await gate.check(new Request("https://example.com/"), { subject: "alice" });
  const body_ = code.replace(/^import .*$/m, "");
  const run = new (async () => {}).constructor("gate", "usageHandler", "usageOf", "request", "session", `${body_}\nreturn [GET, quotas];`);
  const session = async ({ headers }) => headers.get("x-user");
  const [GET, quotas] = await run(gate, usageHandler, usageOf, new Request("https://example.com/"), session);
  const { resetAfterMs } = quotas[0];
  const answer = await GET(new Request("https://example.com/usage", { headers: { "x-user": "alice" } }));
  const shown = (text) => text.replace(/"reset_after_ms":\d+/, '"reset_after_ms":0');
  assert.equal(shown(await answer.text()), shown(body));
  assert.ok(resetAfterMs > 0 && resetAfterMs <= DAY);
});
