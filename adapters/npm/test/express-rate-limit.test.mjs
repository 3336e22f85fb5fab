// The store for express-rate-limit, in servers of Express.

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, mock, test } from "node:test";
import { format } from "node:util";
import { Tidegate as OnUpstash } from "@tidegate/edge";
import { TidegateStore } from "@tidegate/edge/express-rate-limit";
import { Tidegate } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { Redis } from "ioredis";
import { freePort, redisServer } from "./servers.mjs";

const DAY_MS = 86_400_000;
let named = 0;
const limiter = (quotas, more = {}) =>
  new Tidegate({ platform: "direct", failMode: "closed", onError: () => {}, policy: { name: `erl-${(named += 1)}`, quotas }, ...more });
const tenADay = () => limiter([{ fixedWindow: { limit: 10, windowMs: DAY_MS } }]);
/** A limiter whose store is down. */
const down = async (failMode) =>
  new OnUpstash({ url: `http://127.0.0.1:${await freePort()}`, token: "secret", platform: "direct", failMode, onError: () => {}, policy: { name: "down", quotas: ["10 / d"] } });

const servers = new Set();
after(() => servers.forEach((server) => (server.closeAllConnections(), server.close())));

/** An app that is limited by express-rate-limit. `logged` has what that package logs. */
async function served(tidegate, options = {}, handler = (_req, res) => res.send("hello"), prefix = undefined) {
  const logged = [];
  const log = (error) => logged.push(error.message);
  const limits = { windowMs: DAY_MS, limit: 10, standardHeaders: "draft-8", logger: { error: log, warn: log } };
  const middleware = rateLimit({ ...limits, keyGenerator: (req) => req.get("x-user") ?? "anyone", ...options, store: new TidegateStore(tidegate, { prefix }) });
  const app = express();
  app.use(middleware);
  app.use(handler);
  app.use((error, _req, res, _next) => res.status(500).send(error.message));
  const server = app.listen(0, "127.0.0.1");
  servers.add(server);
  await once(server, "listening");
  const get = (user = "anyone") => fetch(`http://127.0.0.1:${server.address().port}/`, { headers: { "x-user": user } });
  return { get, middleware, logged };
}
const statuses = async (responses) => (await Promise.all(responses)).map(({ status }) => status);
/** Waits for what happens soon. The time limit of the tests ends it. */
async function waitFor(condition) {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 5));
}
const times = (count, get) => Array.from({ length: count }, () => get());

test("of 60 requests at once, exactly 10 are admitted, and the fields are those of the policy", async () => {
  const { get, logged } = await served(tenADay());
  const responses = await Promise.all(times(60, get));
  assert.equal(responses.filter(({ status }) => status === 200).length, 10);
  const remaining = responses.filter(({ status }) => status === 200).map(({ headers }) => Number(headers.get("x-ratelimit-remaining")));
  assert.deepEqual(remaining.sort((a, b) => a - b), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  for (const { status, headers } of responses) {
    assert.equal(headers.get("x-ratelimit-limit"), "10");
    assert.match(headers.get("ratelimit"), /^"10-in-1day"; r=\d; t=\d+$/);
    if (status !== 429) continue;
    const seconds = Number(headers.get("retry-after"));
    assert.ok(seconds > 0 && seconds <= DAY_MS / 1000, `retry-after: ${seconds}`);
  }
  assert.equal((await get("another")).status, 200);
  assert.deepEqual(logged, []);
});

test("two apps that count in one Redis admit exactly 10", async () => {
  const redis = await redisServer();
  const client = new Redis(redis.url);
  const options = { client, platform: "direct", failMode: "closed", deadlineMs: 20_000, policy: { name: "shared", quotas: [{ fixedWindow: { limit: 10, windowMs: DAY_MS } }] } };
  const [one, other] = [await served(new OnRedis(options)), await served(new OnRedis(options))];
  const all = await statuses([...times(30, one.get), ...times(30, other.get)]);
  assert.equal(all.filter((status) => status === 200).length, 10);
  client.disconnect();
  await redis.stop();
});

test("a denial tells when the next request is admitted", async () => {
  const { get } = await served(limiter(["2 burst, 1 / min"]), { windowMs: 120_000, limit: 2 });
  assert.deepEqual(await statuses([get(), get()]), [200, 200]);
  const denied = await get();
  assert.equal(denied.status, 429);
  const seconds = Number(denied.headers.get("retry-after"));
  assert.ok(seconds > 50 && seconds <= 60, `the bucket gets one back in a minute, not at its end in two: ${seconds}`);
});

test("a second quota of the policy denies, too", async () => {
  const { get } = await served(limiter(["10 / d", { fixedWindow: { limit: 2, windowMs: 3_600_000 } }]));
  assert.deepEqual(await statuses(times(3, get)), [200, 200, 429]);
});

test("resetKey removes the counts of a key, and getKey tells them", async () => {
  const { get, middleware } = await served(tenADay());
  assert.equal(await middleware.getKey("anyone"), undefined);
  await Promise.all(times(11, get));
  assert.equal((await middleware.getKey("anyone")).totalHits, 10);
  await middleware.resetKey("anyone");
  assert.equal(await middleware.getKey("anyone"), undefined);
  assert.equal((await get()).status, 200);
});

test("skipSuccessfulRequests refunds what succeeded", async () => {
  const handler = (req, res) => res.status(req.get("x-user") === "fails" ? 400 : 200).end();
  const { get, middleware, logged } = await served(tenADay(), { skipSuccessfulRequests: true }, handler);
  for (let nth = 0; nth < 30; nth++) assert.equal((await get("succeeds")).status, 200);
  for (let nth = 0; nth < 30; nth++) assert.equal((await get("fails")).status, nth < 10 ? 400 : 429);
  assert.equal((await middleware.getKey("succeeds")).totalHits, 0);
  assert.deepEqual(logged, []);
});

test("skipFailedRequests refunds each request that failed, and no denied one, because none is charged", async () => {
  let fail;
  const failed = new Promise((resolve) => (fail = resolve));
  const { get, middleware, logged } = await served(tenADay(), { skipFailedRequests: true }, async (_req, res) => (await failed, res.status(500).end()));
  const used = async () => (await middleware.getKey("anyone"))?.totalHits;
  const admitted = times(10, get);
  await waitFor(async () => (await used()) === 10);
  assert.deepEqual([...new Set(await statuses(times(20, get)))], [429]);
  assert.equal(await used(), 10);
  fail();
  assert.deepEqual([...new Set(await statuses(admitted))], [500]);
  await waitFor(async () => (await used()) === 0);
  assert.deepEqual(logged, []);
});

test("a policy of several keys is an error, because the middleware has one", async () => {
  const by = ["user", "tenant"].map((by) => ({ fixedWindow: { limit: 10, windowMs: DAY_MS }, by }));
  const { get, logged } = await served(limiter(by));
  assert.equal((await get()).status, 500);
  assert.match(logged.join(), /write keys: { user, tenant }/);
});

test("decrement outside of a request is an error", async () => {
  const error = { name: "TidegateError", kind: "unsupported" };
  await assert.rejects(new TidegateStore(tenADay()).decrement("anyone"), error);
});

test("numbers that differ from the policy's are logged at start, and no request passes", async () => {
  for (const [options, message] of [
    [{ limit: 11 }, "limit: 11 is not the policy's; write rateLimit({ limit: 10, windowMs: 86400000, store })"],
    [{ windowMs: 60_000 }, "windowMs: 60000 is not the policy's; write rateLimit({ limit: 10, windowMs: 86400000, store })"],
  ]) {
    const { get, logged } = await served(tenADay(), options);
    assert.deepEqual(logged, [message]);
    const response = await get();
    assert.deepEqual([response.status, await response.text()], [500, message]);
    const passing = await served(tenADay(), { ...options, passOnStoreError: true });
    assert.equal((await passing.get()).status, 429);
  }
});

test("a limit that is a function lowers the policy's, and cannot raise it", async () => {
  const { get, logged } = await served(tenADay(), { limit: (req) => (req.get("x-user") === "free" ? 3 : 1_000) });
  assert.equal((await statuses(times(20, () => get("free")))).filter((status) => status === 200).length, 3);
  assert.equal((await statuses(times(20, () => get("paid")))).filter((status) => status === 200).length, 10);
  assert.deepEqual(logged, []);
});

test("a store that is down: failMode decides first, then passOnStoreError", async () => {
  const open = await served(await down("open"));
  assert.deepEqual(await statuses(times(12, open.get)), Array(12).fill(200));
  const closed = await served(await down("closed"));
  assert.equal((await closed.get()).status, 500);
  const passing = await served(await down("closed"), { passOnStoreError: true });
  assert.equal((await passing.get()).status, 200);
  assert.match(passing.logged.join(), /unavailable|could not|failed|connect/i);
});

test("while Redis is down: a 503 and one line, with the store's handler, and without it a 503 without a stack", async () => {
  const redis = await redisServer();
  const client = new Redis(redis.url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, retryStrategy: () => 20 });
  const limits = { windowMs: DAY_MS, limit: 10_000, standardHeaders: "draft-8", keyGenerator: () => "anyone", validate: false };
  const shown = [];
  const mocks = ["log", "info", "warn", "error"].map((level) => mock.method(console, level, (...parts) => void shown.push(...format(...parts).split("\n").map((line) => `${level}: ${line}`))));
  try {
    for (const answers of [true, false]) {
      shown.length = 0;
      const tidegate = new OnRedis({ client, platform: "direct", failMode: "closed", deadlineMs: 20_000, policy: { name: "down", quotas: [{ fixedWindow: { limit: 10_000, windowMs: DAY_MS } }] } });
      const store = new TidegateStore(tidegate);
      const app = express().use(rateLimit({ ...limits, store, ...(answers && { handler: store.handler }) }), (_req, res) => res.send("hello"));
      const server = app.listen(0, "127.0.0.1");
      servers.add(server);
      await once(server, "listening");
      const get = () => fetch(`http://127.0.0.1:${server.address().port}/`);
      await waitFor(async () => (await get()).status === 200);
      await redis.kill();
      shown.length = 0;
      for (let nth = 0; nth < 100; nth += 1) {
        const response = await get();
        const body = await response.text();
        assert.equal(response.status, 503);
        assert.doesNotMatch(body, /at |node_modules|redis|127\.0\.0\.1/);
        if (!answers) continue;
        assert.deepEqual(JSON.parse(body), { error: "limiter_unavailable", kind: "unavailable" });
        const told = [...response.headers.keys()].filter((name) => /ratelimit|retry-after/.test(name));
        assert.deepEqual(told, [], "nothing is invented");
      }
      // Express logs after the response.
      await waitFor(() => answers || shown.length > 100);
      const own = shown.filter((line) => line.includes("tidegate: the store does not answer"));
      assert.deepEqual([own.length, shown.length], answers ? [1, 1] : [1, 101], shown.slice(0, 5).join("\n"));
      await redis.restart();
      await waitFor(async () => (await get()).status === 200);
    }
  } finally {
    for (const { mock } of mocks) mock.restore();
    client.disconnect();
    await redis.stop();
  }
});

test("the store's handler denies as the default does", async () => {
  const store = new TidegateStore(limiter([{ fixedWindow: { limit: 1, windowMs: DAY_MS } }]));
  for (const [message, body] of [["later", "later"], [{ later: true }, '{"later":true}'], [async (req) => `later, ${req.method}`, "later, GET"]]) {
    const options = { windowMs: DAY_MS, limit: 1, statusCode: 420, keyGenerator: () => JSON.stringify(body), message, validate: false, store, handler: store.handler };
    const server = express().use(rateLimit(options), (_req, res) => res.send("hello")).listen(0, "127.0.0.1");
    servers.add(server);
    await once(server, "listening");
    const get = () => fetch(`http://127.0.0.1:${server.address().port}/`);
    assert.equal((await get()).status, 200);
    const denied = await get();
    assert.deepEqual([denied.status, await denied.text(), denied.headers.get("x-ratelimit-remaining")], [420, body, "0"]);
  }
});

test("passOnStoreError passes no error that a client can cause", async () => {
  const [keyGenerator, passOnStoreError] = [() => "\ud83d", true];
  const passing = await served(tenADay(), { keyGenerator, passOnStoreError });
  assert.equal((await passing.get()).status, 429);
  const failing = await served(tenADay(), { keyGenerator });
  assert.equal((await failing.get()).status, 500);
});

test("what cannot work is an error of the constructor", () => {
  const slots = limiter([{ concurrency: { limit: 2, lifetimeMs: 60_000 } }]);
  assert.throws(() => new TidegateStore(slots), /@tidegate\/edge\/node/);
  assert.throws(() => new TidegateStore(undefined), /new TidegateStore\(tidegate\)/);
});

test("two stores with prefixes limit one request", async () => {
  const tidegate = tenADay();
  const logged = [];
  const options = { windowMs: DAY_MS, limit: 10, keyGenerator: () => "anyone", logger: { error: (error) => logged.push(error), warn: (error) => logged.push(error) } };
  const all = ["minute:", "login:"].map((prefix) => rateLimit({ ...options, store: new TidegateStore(tidegate, { prefix }) }));
  const app = express().use(all, (_req, res) => res.send("hello"));
  const server = app.listen(0, "127.0.0.1");
  servers.add(server);
  await once(server, "listening");
  assert.equal((await fetch(`http://127.0.0.1:${server.address().port}/`)).status, 200);
  assert.equal((await all[0].getKey("anyone")).totalHits, 1);
  assert.deepEqual(logged, []);
});

test("a request is refunded once, and a key whose requests were all refunded has no hits, but is known", async () => {
  const store = new TidegateStore(tenADay());
  await store.init({ windowMs: DAY_MS, limit: 10 });
  assert.equal(await store.get("one"), undefined);
  await store.increment("other");
  for (let nth = 0; nth < 3; nth++) await store.increment("one");
  await store.decrement("one");
  await store.decrement("one");
  assert.equal((await store.get("one")).totalHits, 2);
  await store.resetKey("one");
  assert.equal(await store.get("one"), undefined);
  await store.increment("one");
  await store.decrement("one");
  const { totalHits, resetTime } = await store.get("one");
  assert.equal(totalHits, 0);
  assert.ok(resetTime instanceof Date);
  assert.equal((await store.get("other")).totalHits, 1);
});

test("resetAll removes the counts of all keys of the process, of two windows and of at most 100,000 keys", async (t) => {
  t.mock.timers.enable({ apis: ["Date"], now: 1_800_000_000_000 });
  const tidegate = limiter([{ fixedWindow: { limit: 10, windowMs: 1_000 } }]);
  const store = new TidegateStore(tidegate, { prefix: "p:" });
  await store.init({ windowMs: 1_000, limit: 10 });
  await store.increment("early");
  t.mock.timers.tick(900);
  for (const key of ["one", "two", "two"]) await store.increment(key);
  await tidegate.limit("another process");
  await store.resetAll();
  for (const key of ["early", "one", "two"]) assert.equal(await store.get(key), undefined, key);
  assert.equal((await tidegate.peek(new Request("http://localhost"), { key: "another process" })).quotas[0].remaining, 9);
  assert.equal((await store.increment("two")).totalHits, 1);
  for (let nth = 0; nth < 100_000; nth++) await store.increment(`key ${nth}`);
  await assert.rejects(store.resetAll(), { kind: "unsupported", message: "resetAll: more than 100000 keys; reset each with resetKey" });
  assert.equal((await store.get("two")).totalHits, 1);
  // What was counted more than two windows ago is over, and so is that there was too much of it.
  for (let window = 0; window < 2; window++) {
    t.mock.timers.tick(2_000);
    await store.increment("late");
  }
  await store.resetAll();
  assert.equal(await store.get("late"), undefined);
});
