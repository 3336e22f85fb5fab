// A gate whose rules have limits with and without a lease.

import assert from "node:assert/strict";
import { after, beforeEach, describe, test } from "node:test";
import { Gate, TidegateError } from "@tidegate/edge/gate";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import * as jose from "jose";
import { redisServer } from "./servers.mjs";

const server = await redisServer();
const client = new Redis(server.url);
after(async () => {
  client.disconnect();
  await server.stop();
});
beforeEach(() => server.command("FLUSHALL"));

const quotas = [{ algorithm: "token_bucket", capacity: 500, refill: 1, per_ms: 86_400_000 }];
const rules = {
  limits: { api: { quotas, lease: { slice: 20, lifetime_ms: 10_000 } }, plain: { quotas }, graced: { quotas, lease: { grace: 2 } } },
  rules: [{ limits: ["api"] }, { path: "/plain", limits: ["plain"] }, { path: "/graced", limits: ["graced"] }],
};
const onRedis = (limit) => new OnRedis({ client, deadlineMs: 20_000, ...limit });
const gateOn = (store, more) => Gate.fromRules({ ...rules, ...more }, { platform: "cloudflare", stores: { redis: store, memory: (limit) => new Memory(limit) } });
const request = (path) => new Request(`https://example.com${path}`, { headers: { "cf-connecting-ip": "192.0.2.1" } });

/** How many requests pass, and the origins of their decisions. */
async function ask(gate, path, count, options) {
  let passed = 0;
  const origins = {};
  for (let nth = 0; nth < count; nth++) {
    const { outcome, origin } = await gate.check(request(path), options);
    passed += Number(outcome === "allowed");
    origins[origin] = (origins[origin] ?? 0) + 1;
  }
  return { passed, origins };
}

describe("a limit with a lease", () => {
  test("is decided from loans, and one without never is", async () => {
    const gate = gateOn(onRedis);
    const { passed, origins } = await ask(gate, "/", 200);
    assert.equal(passed, 200);
    assert.ok(origins.lease > 150, JSON.stringify(origins));
    assert.deepEqual(await ask(gate, "/plain", 200), { passed: 200, origins: { store: 200 } });
    assert.deepEqual(await ask(gate, "/", 3, { token: "once" }), { passed: 3, origins: { store: 3 } });
  });

  test("never passes more requests of two gates than its limit", async () => {
    const gates = [gateOn(onRedis), gateOn(onRedis)];
    let passed = 0;
    for (let nth = 0; nth < 60; nth++) for (const gate of gates) passed += (await ask(gate, "/", 10)).passed;
    assert.ok(passed <= 500 && passed >= 420, `${passed} of 500`);
  });

  test("is settled, and explained with its bounds", async () => {
    const gate = gateOn(onRedis);
    const verdict = await gate.check(request("/"), { estimate: 5 });
    await gate.settle(verdict, { cost: 2 });
    assert.match(await gate.explain(request("/")), /\nlease {4}at most 20 units, for at most 10000 ms\n/);
  });

  test("gives the first requests of a key its grace", async () => {
    const gate = gateOn(onRedis);
    assert.deepEqual(await ask(gate, "/graced", 2), { passed: 2, origins: { lease: 2 } });
    assert.match(await gate.explain(request("/graced")), /\nlease {4}at most 50 units, for at most 60000 ms, and 2 units before the first answer; each process or isolate may exceed the limit by so many\n/);
  });

  test("on a store that does not borrow is an error", () => {
    const refused = /^limit "api": it has a lease, and the store "(redis|memory)" does not borrow; delete lease/;
    const thrown = (store, more) => assert.throws(() => gateOn(store, more), (error) => error instanceof TidegateError && error.kind === "unsupported" && refused.test(error.message));
    thrown((limit) => new Memory(limit));
    thrown(({ leases, ...limit }) => onRedis(limit));
    thrown(onRedis, { rules: [{ limits: ["api"], store: "memory" }] });
  });

  test("spends its loans before a fallback answers", async () => {
    let isDown = false;
    const dying = { call: (...words) => (isDown ? Promise.reject(new Error("connect ECONNREFUSED")) : client.call(...words)) };
    const store = (limit) => new OnRedis({ client: dying, clock: "caller", minTtlMs: 3_600_000, deadlineMs: 20_000, ...limit });
    const gate = gateOn(store, { stores: { redis: { fallback: { store: "memory", percent: 10 } } } });
    const now = 1_800_000_000_000;
    await ask(gate, "/", 90, { now });
    isDown = true;
    // The breaker asks the store no more.
    assert.deepEqual((await ask(gate, "/plain", 5, { now })).origins, { fallback: 5 });
    const { origins } = await ask(gate, "/", 30, { now });
    assert.ok(origins.lease > 0 && origins.fallback > 0, JSON.stringify(origins));
  });

  test("is decided at the time when the keys are known", async () => {
    const { now: clock } = Date;
    let now = 1_800_000_000_000;
    try {
      Date.now = () => now;
      const secret = new TextEncoder().encode("a secret of more than thirty-two bytes");
      const jwk = { kty: "oct", kid: "hs", k: jose.base64url.encode(secret) };
      const keys = async () => ((now += 60_000), jwk);
      const stores = { redis: (limit) => onRedis({ clock: "caller", minTtlMs: 3_600_000, ...limit }) };
      const gate = Gate.fromRules({ ...rules, tokens: { algorithms: ["HS256"] } }, { platform: "cloudflare", stores, keys, onError: () => undefined });
      const payload = JSON.stringify({ sub: "alice", exp: now / 1_000 + 3_600 });
      const token = await new jose.CompactSign(new TextEncoder().encode(payload)).setProtectedHeader({ alg: "HS256", kid: "hs" }).sign(secret);
      for (let nth = 0; nth < 12; nth++) {
        const before = now;
        const verdict = await gate.check(new Request("https://example.com/", { headers: { authorization: `Bearer ${token}` } }));
        assert.deepEqual([verdict.outcome, verdict.decidedAtMs > before, verdict.decidedAtMs], ["allowed", true, now]);
      }
    } finally {
      Date.now = clock;
    }
  });

  test("keeps its replacement from borrowing", async () => {
    const down = (limit) => new OnRedis({ client: { call: () => Promise.reject(new Error("connect ECONNREFUSED")) }, ...limit });
    const gate = gateOn(down, { stores: { redis: { fallback: { store: "memory", percent: 100 } } } });
    const { passed, origins } = await ask(gate, "/", 10);
    assert.deepEqual({ passed, origins }, { passed: 10, origins: { fallback: 10 } });
  });
});
