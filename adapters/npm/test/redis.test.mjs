// The limiter on Redis, through the clients that applications have, over a real redis-server.

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Tidegate } from "@tidegate/edge/redis";
import { Redis as Upstash } from "@upstash/redis";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { redisServer } from "./servers.mjs";

const server = await redisServer();
after(() => server.stop());

const clients = {
  ioredis: async (url) => {
    const client = new Redis(url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, lazyConnect: true, retryStrategy: null });
    client.on("error", () => {});
    await client.connect().catch(() => {});
    return { client, close: () => client.disconnect() };
  },
  "node-redis": async (url) => {
    const client = createClient({ url, disableOfflineQueue: true, socket: { reconnectStrategy: false } });
    client.on("error", () => {});
    await client.connect().catch(() => {});
    return { client, close: () => client.isOpen && client.destroy() };
  },
};
// A client of Bun has another method for the same.
clients["a client with send"] = async (url) => {
  const { client, close } = await clients.ioredis(url);
  return { client: { send: (command, args) => client.call(command, ...args) }, close };
};

const options = { platform: "direct", failMode: "open", deadlineMs: 20_000, onError: () => {} };
const limiter = (client, quotas, more = {}) => new Tidegate({ ...options, client, policy: { name: "api", quotas }, ...more });
beforeEach(() => server.command("FLUSHALL"));

for (const [name, connect] of Object.entries(clients)) {
  test(`${name}: 500 concurrent requests, also right after the scripts were flushed: exactly the limit is admitted`, async () => {
    const { client, close } = await connect(server.url);
    for (const quota of ["60 / d", "60 burst, 1 / d", { slidingLog: { limit: 60, windowMs: 86_400_000 } }]) {
      await server.command("SCRIPT", "FLUSH");
      await server.command("FLUSHALL");
      const tidegate = limiter(client, [quota]);
      const verdicts = await Promise.all(Array.from({ length: 500 }, () => tidegate.limit("user:é|42")));
      assert.deepEqual(verdicts.filter(({ error }) => error), []);
      assert.equal(verdicts.filter(({ allowed }) => allowed).length, 60);
    }
    close();
  });

  test(`${name}: estimates, slots, refunds and resets`, async () => {
    const { client, close } = await connect(server.url);
    const tidegate = limiter(client, ["100 / d", { concurrency: { limit: 2, lifetimeMs: 60_000 } }]);
    const left = async () => (await tidegate.peek(new Request("https://example.com"), { key: "k" })).quotas.map(({ remaining }) => remaining);
    const verdict = await tidegate.limit("k", { estimate: 30 });
    assert.deepEqual(await left(), [70, 1]);
    await tidegate.settle(verdict, { cost: 12 });
    assert.deepEqual(await left(), [88, 2]);
    const slot = await tidegate.limit("k");
    await tidegate.release(slot);
    assert.deepEqual(await left(), [87, 2]);
    await tidegate.refund(await tidegate.limit("k", { cost: 7 }), { cost: 7 });
    assert.deepEqual(await left(), [87, 2]);
    await tidegate.reset("k");
    assert.deepEqual(await left(), [100, 2]);
    close();
  });

  test(`${name}: an error of Redis is told from a lost connection, and does not open`, async () => {
    const { client, close } = await connect(server.url);
    const tidegate = limiter(client, ["10 / d"]);
    await tidegate.limit("k");
    const [key] = await server.command("KEYS", "*");
    await server.command("SET", key, "not a state");
    const corrupt = await tidegate.limit("k");
    assert.deepEqual([corrupt.allowed, corrupt.error.kind], [false, "corrupt"]);
    await server.command("CONFIG", "SET", "maxmemory", "1");
    const full = await tidegate.limit("other");
    await server.command("CONFIG", "SET", "maxmemory", "0");
    assert.deepEqual([full.allowed, full.error.kind], [false, "refused"], full.error.message);
    close();
  });

  test(`${name}: a closed client is a failure of the store, which fails open or closed`, async () => {
    const { client, close } = await connect(server.url);
    close();
    for (const [failMode, allowed] of [["open", true], ["closed", false]]) {
      const verdict = await limiter(client, ["10 / d"], { failMode }).limit("k");
      assert.deepEqual([verdict.allowed, verdict.error.kind], [allowed, "unavailable"], verdict.error.message);
      assert.match(verdict.error.message, /^redis: no connection/);
    }
  });
}

test("while a server hangs, decisions fail by their deadline, and a client with socketTimeout keeps no commands", async (context) => {
  const hanging = await redisServer();
  const client = new Redis(hanging.url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 300, retryStrategy: () => 20 });
  client.on("error", () => {});
  context.after(() => {
    hanging.resume();
    client.disconnect();
    return hanging.stop();
  });
  await once(client, "ready");
  const tidegate = limiter(client, ["1000 / d"], { deadlineMs: 100 });
  assert.equal((await tidegate.limit("k")).error, undefined);
  hanging.halt();
  const began = performance.now();
  for (let round = 0; round < 20; round += 1) {
    const verdicts = await Promise.all(Array.from({ length: 20 }, (_, nth) => tidegate.limit(`k${nth}`)));
    assert.ok(verdicts.every(({ allowed, error }) => allowed && ["timeout", "unavailable"].includes(error.kind)), JSON.stringify(verdicts[0]));
  }
  assert.ok(performance.now() - began < 10_000, "each decision ends by its deadline");
  // Those of the last attempt to connect. Without the timeout, it keeps one of each round.
  assert.ok(client.commandQueue.length < 10, `${client.commandQueue.length} commands are kept`);
  hanging.resume();
  for (let tries = 0; (await tidegate.limit("k")).error !== undefined; tries += 1) {
    assert.ok(tries < 100, "it recovers");
    await sleep(100);
  }
});

test("what is not a client is an error at construction that says what to write", () => {
  const upstash = new Upstash({ url: "https://example.upstash.io", token: "secret" });
  for (const client of [undefined, null, "redis://localhost", {}, { get() {} }, Redis, upstash]) {
    assert.throws(() => limiter(client, ["1 / s"]), { name: "TidegateError", field: "client", message: /a client of ioredis, node-redis or Bun/ });
  }
});

test("the first decisions wait for the connection, also of a lazy client", async () => {
  // The options that README.md shows.
  const options = { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5000 };
  for (const more of [{}, { lazyConnect: true }]) {
    const client = new Redis(server.url, { ...options, ...more });
    const tidegate = limiter(client, ["10 / d"], { deadlineMs: 5_000 });
    const verdicts = await Promise.all(Array.from({ length: 20 }, () => tidegate.limit(`first-${Object.keys(more)}`)));
    assert.deepEqual(verdicts.map(({ error }) => error?.message).filter(Boolean), []);
    assert.equal(verdicts.filter(({ allowed }) => allowed).length, 10);
    client.disconnect();
  }
  const node = createClient({ url: server.url, disableOfflineQueue: true });
  node.on("error", () => {});
  const opened = node.connect();
  const tidegate = limiter(node, ["10 / d"], { deadlineMs: 5_000 });
  assert.equal((await tidegate.limit("first-node-redis")).error, undefined);
  await opened;
  node.destroy();
});

test("a server that is not there is unavailable at once, also for the first decision", async () => {
  const client = new Redis("redis://127.0.0.1:1", { enableOfflineQueue: false, maxRetriesPerRequest: 0 });
  client.on("error", () => {});
  const tidegate = limiter(client, ["10 / d"], { deadlineMs: 20_000 });
  const began = Date.now();
  const { error, failedOpen } = await tidegate.limit("k");
  assert.deepEqual([error.kind, failedOpen], ["unavailable", true]);
  assert.ok(Date.now() - began < 5_000);
  client.disconnect();
});

test("5,000 decisions at once: those beyond the calls in flight wait, and the limit is exact", async () => {
  const { client, close } = await clients.ioredis(server.url);
  const tidegate = limiter(client, ["1000 / d"]);
  const verdicts = await Promise.all(Array.from({ length: 5_000 }, () => tidegate.limit("crowd")));
  assert.deepEqual(verdicts.filter(({ error }) => error), []);
  assert.equal(verdicts.filter(({ allowed }) => allowed).length, 1_000);
  close();
});

test("of a crowd at a silent server, those that wait for room end at their deadline, too", async () => {
  const silent = { call: () => new Promise(() => {}) };
  const tidegate = limiter(silent, ["10 / d"], { deadlineMs: 200 });
  const began = Date.now();
  const verdicts = await Promise.all(Array.from({ length: 2_500 }, () => tidegate.limit("silent")));
  assert.ok(verdicts.every(({ error, failedOpen }) => error.kind === "timeout" && failedOpen));
  assert.ok(Date.now() - began < 5_000);
});
