// A store that is slow and answers each call before the deadline: whatever clients do, nothing is admitted because of a failure, and no
// window admits more than its limit. The store is a real redis-server behind a proxy that delays its answers.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, connect } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { after, describe, test } from "node:test";
import { Tidegate as OnUpstash } from "@tidegate/edge";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { upstash } from "./servers.mjs";

const DEADLINE_MS = 2_500;
const LIMIT = 150;
const DAY = 86_400_000;

const server = await upstash();
const ends = [() => server.stop()];
after(async () => {
  for (const end of ends.reverse()) await end();
});

/** A proxy to a loopback port whose answers take as long as `delayMs()` says, each by itself. Returns its port. */
async function slowly(port, delayMs) {
  const sockets = new Set();
  const proxy = createServer((near) => {
    const far = connect(Number(port), "127.0.0.1");
    for (const socket of [near, far]) sockets.add(socket.on("error", () => undefined).on("close", () => (near.destroy(), far.destroy(), sockets.delete(socket))));
    near.on("data", (bytes) => far.write(bytes));
    far.on("data", (bytes) => setTimeout(() => near.destroyed || near.write(bytes), delayMs()));
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  ends.push(() => {
    for (const socket of sockets) socket.destroy();
    proxy.close();
  });
  return proxy.address().port;
}

/** A client that keeps no commands. Its first connection is opened by the first check. */
function clientOf(port) {
  const client = new Redis(port, "127.0.0.1", { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0 });
  client.on("error", () => undefined);
  ends.push(() => client.disconnect());
  return client;
}

const window = { fixedWindow: { limit: LIMIT, windowMs: DAY } };
const common = { platform: "direct", failMode: "open", deadlineMs: DEADLINE_MS, onError: () => undefined };

/** Makes limiters with the options that a store has, each as a function of a key and the number of the check. */
function limitersOn(place, name) {
  const on = { redis: (more) => new OnRedis({ ...common, client: clientOf(place.redis), ...more }), upstash: (more) => new OnUpstash({ ...common, url: place.upstash, token: server.token, ...more }) };
  const policyOf = (what, quotas = [window]) => ({ name: `${name}-${what}`.replaceAll(" ", "-"), quotas });
  const limiter = (make, what, more, options = () => undefined) => () => {
    const tidegate = make({ policy: policyOf(what, more.quotas), ...more.options });
    return (key, nth) => tidegate.limit(key, options(nth));
  };
  const gate = (what, stores, limit) => () => {
    const quotas = [{ algorithm: "fixed_window", limit: LIMIT, window_ms: DAY }];
    const rules = { stores: { main: stores }, limits: { [policyOf(what).name]: { quotas, ...limit }, flood: { quotas: [{ ...quotas[0], limit: 10_000 }] } }, rules: [{ limits: [policyOf(what).name], on_failure: "open" }] };
    const made = Gate.fromRules(rules, {
      platform: "direct",
      stores: { main: (limit) => on.redis({ ...limit, failMode: "open" }), memory: (limit) => new Memory(limit) },
      onError: () => undefined,
    });
    return (key) => made.check(new Request("https://example.com/"), { key });
  };
  return {
    "redis, plain": limiter(on.redis, "plain", {}),
    "redis, leases": limiter(on.redis, "leases", { options: { leases: true } }),
    "redis, deny cache": limiter(on.redis, "deny cache", { options: { denyCache: true } }),
    "redis, tokens": limiter(on.redis, "tokens", {}, (nth) => ({ idempotency: { token: `t${nth}`, ttlMs: DAY } })),
    "redis, concurrency": limiter(on.redis, "concurrency", { quotas: [{ concurrency: { limit: LIMIT, lifetimeMs: DAY } }, window] }),
    "upstash, plain": limiter(on.upstash, "rest", {}),
    "upstash, leases": limiter(on.upstash, "rest leases", { options: { leases: true } }),
    "gate, leases": gate("gate leases", {}, { lease: { slice: 20, lifetime_ms: 60_000 } }),
    "gate, near and fallback": gate("gate near", { near: { store: "memory", limit: "flood" }, fallback: "memory" }, {}),
    "gate, deny cache": gate("gate cache", { deny_cache: true }, {}),
  };
}

const OPTIONS = Object.keys(limitersOn({}, ""));

/** The key of the nth check. */
const clients = { "one hot key": () => "user:1", "many keys": (nth) => `user:${nth % 23}` };

/** On a machine that lets a process wait this long, an answer at 90 % of the deadline may come after it. */
const BUSY_MS = 60;
const ATTEMPTS = 5;

/** Plays a client. Returns what was opened, the most that a key got, and how long this process had to wait for its turn. */
async function played(name, keyOf, percent, prefix) {
  const lag = monitorEventLoopDelay({ resolution: 10 });
  lag.enable();
  // The first connection is slow, too: a client needs two answers to open one. The first leases are not.
  let delayMs = (DEADLINE_MS * Math.min(percent, 45)) / 100;
  const [redis, rest] = await Promise.all([server.redis, server.url].map((url) => slowly(new URL(url).port, () => delayMs)));
  const ask = limitersOn({ redis, upstash: `http://127.0.0.1:${rest}` }, prefix)[name]();
  const admitted = new Map();
  const check = async (nth) => {
    const key = keyOf(nth);
    const { failedOpen, origin, allowed, error } = await ask(key, nth);
    if (failedOpen || origin === "fallback") return `check ${nth}: ${error}`;
    if (allowed) admitted.set(key, (admitted.get(key) ?? 0) + 1);
    return undefined;
  };
  const opened = [await check(0)];
  delayMs = 0;
  for (let nth = 1; nth < 100; nth++) opened.push(await check(nth));
  delayMs = (DEADLINE_MS * percent) / 100;
  const asked = [];
  for (let nth = 100; nth < 180; nth++) {
    asked.push(check(nth));
    if (nth % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  opened.push(...(await Promise.all(asked)));
  lag.disable();
  return { opened: opened.filter(Boolean), most: Math.max(...admitted.values()), lagMs: lag.max / 1e6 };
}

// Each takes some seconds, of which the process works for a few milliseconds. All at once would be more than it can do in time.
describe("a slow store that answers in time", { concurrency: 10 }, () => {
  for (const percent of [20, 50, 90]) {
    for (const [client, keyOf] of Object.entries(clients)) {
      for (const name of OPTIONS) {
        test(`${name}, ${client}, ${percent} % of the deadline`, async () => {
          let last;
          // Where the machine kept the store from answering in time, the case is played again.
          for (let nth = 0; nth < ATTEMPTS; nth++) {
            last = await played(name, keyOf, percent, `${percent}-${client}-${nth}`);
            if (last.opened.length === 0 || last.lagMs < BUSY_MS) break;
          }
          assert.deepEqual(last.opened, []);
          assert.ok(last.most > 0 && last.most <= LIMIT, `${last.most} of ${LIMIT}`);
        });
      }
    }
  }
});

test("if the store dies, checks that wait for another one's lease get its failure, after two deadlines at most", async () => {
  let isDead = false;
  const client = clientOf(new URL(server.redis).port);
  const dying = { call: (...words) => (isDead ? new Promise(() => undefined) : client.call(...words)) };
  await once(client, "ready");
  const tidegate = new OnRedis({ ...common, client: dying, deadlineMs: 300, leases: { slice: 100 }, policy: { name: "dying", quotas: [{ fixedWindow: { limit: 1_000_000, windowMs: DAY } }] } });
  // Until a lease of many units is spent.
  for (let nth = 0; nth < 300; nth++) await tidegate.limit("user:1");
  isDead = true;
  const verdicts = [];
  for (let nth = 0; nth < 250; nth++) verdicts.push(tidegate.limit("user:1"));
  const failed = (await Promise.all(verdicts)).filter(({ error }) => error);
  assert.ok(failed.length > 20, `${failed.length} failed`);
  assert.deepEqual([...new Set(failed.map(({ error, failedOpen }) => `${error.kind} ${failedOpen}`))], ["timeout true"]);
});

test("a server that accepts no more clients, and a process that may open no more files, are contended", async () => {
  // Each as a client tells it: what the server has answered, or an error of the connection.
  for (const message of ["ERR max number of clients reached", "Ready check failed: ERR max number of clients reached", "connect EMFILE 127.0.0.1:6379"]) {
    const client = { call: () => Promise.reject(new Error(message)) };
    const verdict = await new OnRedis({ ...common, client, policy: { name: "full", quotas: [window] } }).limit("user:1");
    assert.deepEqual([verdict.error.kind, verdict.failedOpen, verdict.allowed], ["contended", false, false], message);
  }
});
