// A store that is slow and answers each call before the deadline: whatever clients do, nothing is admitted because of a failure, and no
// window admits more than its limit. The store is a real redis-server behind a proxy that delays its answers.

import assert from "node:assert/strict";
import { once } from "node:events";
import { describe, test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { clientOf, common, DAY, inTime, isOpen, OPTIONS, PERCENTS, server, slowStore } from "./slow-stores.mjs";

const LIMIT = 150;

/** The key of the nth check. */
const clients = { "one hot key": () => "user:1", "many keys": (nth) => `user:${nth % 23}` };

/** Plays a client. Returns what was opened, and the most that a key got. */
async function played(name, keyOf, percent, prefix) {
  const store = await slowStore(percent);
  const { decider, more } = store.with(name, prefix, LIMIT);
  const ask = (key, nth) => (decider instanceof Gate ? decider.check(new Request("https://example.com/"), { key }) : decider.limit(key, more(nth)));
  const admitted = new Map();
  const check = async (nth) => {
    const key = keyOf(nth);
    const verdict = await ask(key, nth);
    if (isOpen(verdict)) return `check ${nth}: ${verdict.error}`;
    if (verdict.allowed) admitted.set(key, (admitted.get(key) ?? 0) + 1);
    return undefined;
  };
  const opened = [await check(0)];
  // The first leases are not slow.
  store.quick();
  for (let nth = 1; nth < 100; nth++) opened.push(await check(nth));
  store.slow();
  const asked = [];
  for (let nth = 100; nth < 180; nth++) {
    asked.push(check(nth));
    if (nth % 10 === 9) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  opened.push(...(await Promise.all(asked)));
  return { opened: opened.filter(Boolean), most: Math.max(...admitted.values()) };
}

// Each takes some seconds, of which the process works for a few milliseconds. All at once would be more than it can do in time.
describe("a slow store that answers in time", { concurrency: 10 }, () => {
  for (const percent of PERCENTS) {
    for (const [client, keyOf] of Object.entries(clients)) {
      for (const name of OPTIONS) {
        test(`${name}, ${client}, ${percent} % of the deadline`, async () => {
          const { opened, most } = await inTime((nth) => played(name, keyOf, percent, `${percent}-${client}-${nth}`));
          assert.deepEqual(opened, []);
          assert.ok(most > 0 && most <= LIMIT, `${most} of ${LIMIT}`);
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
    const verdict = await new OnRedis({ ...common, client, policy: { name: "full", quotas: [{ fixedWindow: { limit: 150, windowMs: DAY } }] } }).limit("user:1");
    assert.deepEqual([verdict.error.kind, verdict.failedOpen, verdict.allowed], ["contended", false, false], message);
  }
});
