// A `RateLimiter` of parts on Redis, on Upstash and on the Rate Limiting binding decides as `Tidegate` does there by the same policy.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { capabilities as ofUpstash, RateLimiter as OnUpstash, Tidegate as Upstash } from "@tidegate/edge";
import { bindingWindow, capabilities as ofBinding, RateLimiter as OnBinding, Tidegate as Binding } from "@tidegate/edge/cloudflare-ratelimit";
import { balance } from "@tidegate/edge/credits";
import { block, clientAddress, concurrency, fixedWindow, slidingLog, slidingWindow, tokenBucket } from "@tidegate/edge/parts";
import { capabilities as ofRedis, RateLimiter as OnRedis, Tidegate as Redis, TidegateError } from "@tidegate/edge/redis";
import { Redis as Client } from "ioredis";
import { counting, policies, toldBy } from "./part-policies.mjs";
import { Chance, seeded } from "./reference.mjs";
import { upstash } from "./servers.mjs";

const SEED = seeded();
const STEPS = Number(process.env.STEPS ?? 2_000);
/** The rows of these tests outlive them: their time is the caller's. */
const COMMON = { failMode: "closed", deadlineMs: 20_000, onError: () => {} };
const CALLER = { clock: "caller", minTtlMs: 3_600_000 };

/** What the package says that each store supports. */
const supported = { upstash: ofUpstash, redis: ofRedis, binding: ofBinding };

let server;
let client;
before(async () => {
  server = await upstash();
  client = new Client(server.redis);
});
after(async () => {
  client.disconnect();
  await server.stop();
});

const STORES = {
  upstash: (options) => [(policy) => new OnUpstash({ ...place(), ...options, policy }), (policy) => new Upstash({ ...place(), platform: "vercel", ...options, policy })],
  redis: (options) => [(policy) => new OnRedis({ client, ...options, policy }), (policy) => new Redis({ client, platform: "vercel", ...options, policy })],
};
const place = () => ({ url: server.url, token: server.token });

for (const [name, stores] of Object.entries(STORES)) {
  describe(name, () => {
    test("decides and answers as Tidegate does by objects", async () => {
      const chance = new Chance(SEED);
      const outcomes = {};
      const [lean, whole] = stores({ ...COMMON, ...CALLER });
      for (let done = 0, nth = 0; done < STEPS; nth++) {
        const { made, written, by } = policies(chance, `${name}${nth}`);
        const [ours, theirs] = [lean(made), whole(written)];
        assert.deepEqual(supported[name], theirs.capabilities);
        let now = 1_800_000_000_000 + chance.below(100_000);
        for (const end = done + 40; done < end; done++) {
          now = Math.max(now + chance.from([0, 1, chance.below(50), chance.below(5_000), chance.below(100_000), -chance.below(100)]), 1);
          const user = `user:${chance.below(2)}`;
          const key = by ? { "": user, [by]: `tenant:${chance.below(2)}` } : chance.once(8) ? "ü/%" : user;
          const options = { now, cost: chance.from([1, 1, 1, 2, 0, chance.below(25)]) };
          const [mine, other] = await Promise.all([ours.limit(key, options), theirs.limit(key, options)]);
          assert.equal(mine.error, undefined);
          outcomes[mine.outcome] = (outcomes[mine.outcome] ?? 0) + 1;
          const at = `seed ${SEED}: ${JSON.stringify(written)} ${JSON.stringify(key)} ${JSON.stringify(options)}`;
          assert.deepEqual(toldBy(mine, made.name), toldBy(other, written.name), at);
        }
      }
      for (const outcome of ["allowed", "denied", "never_admissible"]) assert.ok(outcomes[outcome] > STEPS / 100, JSON.stringify(outcomes));
    });

    test("counts together with Tidegate, by the server's clock and at once", async () => {
      const [lean, whole] = stores(COMMON);
      const quotas = [slidingLog(30, "1 h"), tokenBucket(60, 1, "1 h")];
      const limiters = [lean({ name: `${name}-one`, quotas }), whole({ name: `${name}-one`, quotas: ["30 / h", "60 burst, 1 / h"] })];
      const verdicts = await Promise.all(Array.from({ length: 100 }, (_, nth) => limiters[nth % 2].limit("user:1")));
      assert.equal(verdicts.filter(({ allowed }) => allowed).length, 30);
    });

    test("checks a request by its client's address", async () => {
      const [lean] = stores({ ...COMMON, sender: clientAddress("vercel") });
      const limiter = lean({ name: `${name}-address`, quotas: [fixedWindow(1, "1 h")] });
      const check = (address) => limiter.check(new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": address } }));
      assert.deepEqual([(await check("192.0.2.1")).allowed, (await check("192.0.2.1")).response.status, (await check("192.0.2.2")).key], [true, 429, "ip:192.0.2.2"]);
    });

    test("a state that the plain script leaves alone is decided by the general one", async () => {
      const [lean] = stores(COMMON);
      const limiter = lean({ name: `${name}-corrupt`, quotas: [fixedWindow(10, "1 h")] });
      await limiter.limit("user:1");
      const [row] = await server.command("KEYS", `*${name}-corrupt*`);
      await server.command("SET", row, "fw1 0");
      const { error } = await limiter.limit("user:1");
      assert.equal(error.kind, "corrupt");
      assert.match(error.message, /is not a state of this policy/);
      // Of a clock that is an hour ahead, which the general script moves back.
      const now = Date.now();
      await server.command("SET", row, `fw1 ${Math.floor(now / 3_600_000 + 2) * 3_600_000} 10;`);
      assert.equal((await limiter.limit("user:1")).error, undefined);
    });

    test("of a key of which a limiter with leases has lent a part, it admits what is left, without counts", async () => {
      const [lean, whole] = stores({ ...COMMON, ...CALLER });
      const policy = { name: `${name}-lent`, quotas: [tokenBucket(100, 1, "1 h")] };
      const lender = STORES[name]({ ...COMMON, ...CALLER, leases: { slice: 50, lifetimeMs: 60_000 } })[1](policy);
      const now = 1_800_000_000_000;
      for (let nth = 0; nth < 20; nth++) assert.equal((await lender.limit("user:1", { now })).allowed, true);
      const { remaining } = (await whole(policy).peek(new Request("https://example.com/"), { key: "user:1", now })).quotas[0];
      assert.ok(remaining > 0 && remaining < 80, `${remaining} of 100 are left, and a part of the rest is lent`);
      const limiter = lean(policy);
      const verdicts = [];
      for (let nth = 0; nth <= remaining; nth++) verdicts.push(await limiter.limit("user:1", { now }));
      assert.deepEqual(verdicts.map(({ allowed }) => allowed), [...Array(remaining).fill(true), false]);
      for (const { quotas } of verdicts) assert.deepEqual(quotas, [{ name: policy.name, limit: 100, remaining: null, resetAfterMs: null }]);
      assert.equal(verdicts.at(-1).retryAfterMs, null);
      assert.equal((await limiter.limit("user:1", { now, cost: 101 })).outcome, "never_admissible");
      // What was lent matters no more. The first decision forgets it, and the next one tells counts.
      const later = now + 200 * 3_600_000;
      const first = await limiter.limit("user:1", { now: later });
      assert.deepEqual([first.allowed, first.quotas[0].remaining], [true, null]);
      assert.equal((await limiter.limit("user:1", { now: later })).quotas[0].remaining, (await whole(policy).limit("user:1", { now: later })).quotas[0].remaining + 1);
    });

    test("a store that is down admits by the fail mode, and the application hears of it", async () => {
      const events = [];
      const onError = ({ kind, health, failedOpen }) => events.push([kind, health, failedOpen]);
      const nowhere = name === "redis" ? { client: new Client(9, "127.0.0.1", { retryStrategy: () => null, lazyConnect: true, maxRetriesPerRequest: 0 }) } : { url: "http://127.0.0.1:9" };
      const limiter = STORES[name]({ ...COMMON, failMode: "open", onError, ...nowhere })[0]({ name: "down", quotas: [slidingWindow(1, "1 s")] });
      const verdict = await limiter.limit("user:1");
      assert.deepEqual([verdict.outcome, verdict.headers], ["failed_open", { "x-tidegate-failed-open": "unavailable" }]);
      assert.deepEqual(events, [["unavailable", "down", true]]);
    });

    test("what only Tidegate does is an error that says so", () => {
      const [lean] = stores(COMMON);
      for (const [quota, message] of [
        [concurrency(1, "1 s"), /a slot is released, and a RateLimiter only decides; write Tidegate/],
        [block("1 d"), /a block is set, and a RateLimiter only decides; write Tidegate/],
        [balance(), /a balance is granted, and a RateLimiter only decides; write Tidegate/],
        ["10 / s", /not made by a function/],
      ]) {
        assert.throws(() => lean({ name: "a", quotas: [fixedWindow(1, "1 s"), quota] }), { kind: "invalid", field: "policy.quotas[1]", message });
      }
      assert.throws(() => STORES[name]({ ...COMMON, leases: true })[0]({ name: "a", quotas: [fixedWindow(1, "1 s")] }), /unknown field "leases"/);
      assert.throws(() => STORES[name]({ ...COMMON, failMode: undefined })[0]({ name: "a", quotas: [fixedWindow(1, "1 s")] }), { field: "failMode" });
    });

    test("Tidegate holds slots and blocks by functions as by objects", async () => {
      const [, whole] = stores(COMMON);
      const window = { fixedWindow: { limit: 100, windowMs: 3_600_000 } };
      const forms = [
        [fixedWindow(100, "1 h"), concurrency(2, "1 h"), block("1 d")],
        [window, { concurrency: { limit: 2, lifetimeMs: 3_600_000 } }, { block: { capMs: 86_400_000 } }],
      ].map((quotas) => whole({ name: `${name}-held`, quotas }));
      // Each form releases and ends what the other has begun: both are one policy.
      const [one, two] = [await forms[0].limit("user:1"), await forms[1].limit("user:1")];
      assert.deepEqual([one.allowed, two.allowed, (await forms[0].limit("user:1")).allowed], [true, true, false]);
      await forms[1].release(one);
      assert.equal((await forms[0].limit("user:1")).allowed, true);
      await forms[0].block("user:1", 60_000);
      await forms[1].release(two);
      assert.ok((await forms[1].limit("user:1")).retryAfterMs > 50_000);
      await forms[1].block("user:1", 0);
      assert.equal((await forms[0].limit("user:1")).allowed, true);
    });
  });
}

test("if the server has lost the script for what is lent, a RateLimiter that does not have it says so", async () => {
  const policy = { name: "lost", quotas: [tokenBucket(100, 1, "1 h")] };
  const lender = new Redis({ client, platform: "vercel", ...COMMON, leases: true, policy });
  for (let nth = 0; nth < 20; nth++) await lender.limit("user:1");
  await server.command("SCRIPT", "FLUSH");
  // In a process of its own: here, Tidegate has loaded the script for all.
  const script = `
    import { RateLimiter } from "@tidegate/edge/redis";
    import { tokenBucket } from "@tidegate/edge/parts";
    import { Redis } from "ioredis";
    const client = new Redis("${server.redis}");
    const limiter = new RateLimiter({ client, failMode: "open", deadlineMs: 20_000, onError: () => {}, policy: { name: "lost", quotas: [tokenBucket(100, 1, "1 h")] } });
    const verdicts = [await limiter.limit("user:1"), await limiter.limit("user:2"), await limiter.limit("user:1")];
    client.disconnect();
    console.log(JSON.stringify(verdicts.map(({ error, allowed, http }) => [allowed, http?.status, error?.kind, error?.message])));`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { cwd: import.meta.dirname });
  const refused = [false, 503, "unsupported", "a limiter with leases has lent a part of this key's limit; write Tidegate in place of RateLimiter"];
  assert.deepEqual(JSON.parse(stdout), [refused, [true, null, null, null], refused]);
});

test("RateLimiter.fromEnv reads the variables of Tidegate.fromEnv, and a missing one is a 503 that says so", async () => {
  const policy = { name: "env", quotas: [fixedWindow(1, "1 h")] };
  const limiter = OnUpstash.fromEnv({ ...COMMON, policy }, { UPSTASH_REDIS_REST_URL: server.url, KV_REST_API_TOKEN: server.token });
  assert.equal((await limiter.limit("user:1")).allowed, true);
  const broken = OnUpstash.fromEnv({ ...COMMON, failMode: "open", policy }, {});
  assert.throws(() => broken.assertReady(), /^TidegateError: url: missing; set the database's UPSTASH_REDIS_REST_URL/);
  assert.equal((await broken.limit("user:1")).response.status, 503);
});

describe("the Rate Limiting binding", () => {
  /** A binding that counts, and fails as it is told. */
  class Counts {
    keys = [];
    fails = undefined;
    limit = async ({ key }) => {
      this.keys.push(key);
      if (this.fails) throw this.fails;
      return { success: this.keys.filter((other) => other === key).length <= 5 };
    };
  }

  const window = (chance, limit, seconds, options) => (chance.once(2) ? bindingWindow(limit, seconds, options) : fixedWindow(limit, `${seconds} s`, options));

  test("decides, counts and fails as Tidegate does by objects", async () => {
    const chance = new Chance(SEED);
    const outcomes = {};
    for (let done = 0, nth = 0; done < STEPS; nth++) {
      const [limit, seconds] = [1 + chance.below(1_000), chance.from([10, 60])];
      const names = chance.once(3) ? { name: `q${nth}` } : {};
      const by = chance.once(4) ? { by: "tenant" } : {};
      const more = by.by && chance.once(2) ? { groupBy: "tenant" } : {};
      const failMode = chance.from(["open", "closed"]);
      const bindings = [new Counts(), new Counts()];
      const policy = { name: "binding", ...more };
      const [ours, theirs] = [
        new OnBinding({ ...COMMON, failMode, binding: bindings[0], policy: { ...policy, quotas: [window(chance, limit, seconds, { ...names, ...by })] } }),
        new Binding({ ...COMMON, failMode, binding: bindings[1], policy: { ...policy, quotas: [{ fixedWindow: { limit, windowMs: seconds * 1_000 }, ...names, ...by }] } }),
      ];
      assert.deepEqual(supported.binding, theirs.capabilities);
      for (const end = done + 20; done < end; done++) {
        const fails = chance.once(6) ? chance.from([new Error("429 too many"), new TypeError("odd"), new Error("no network"), "nothing"]) : undefined;
        for (const binding of bindings) binding.fails = fails;
        const user = chance.from(["user:1", "ü/%", "k".repeat(300), "", "ip:192.0.2.1", "key:%"]);
        const key = by.by && chance.once(4) ? { tenant: user } : user;
        const options = chance.from([undefined, { cost: 1 }, { cost: 2 }, { now: 1_800_000_000_000 }, { cots: 1 }]);
        const verdicts = await Promise.all([ours.limit(key, options), theirs.limit(key, options)]);
        const [mine, other] = verdicts.map((verdict) => ({ ...toldBy(verdict, "binding"), kind: verdict.error?.kind, field: verdict.error?.field }));
        // Theirs names the options of Tidegate, which are more.
        for (const told of [mine, other]) told.error = told.error?.replace(/write one of:.*/, "");
        assert.deepEqual(mine, other, `seed ${SEED}: ${JSON.stringify([policy, key, options])} ${fails}`);
        const what = mine.kind ?? mine.outcome;
        // Of the counts, the binding tells nothing but the limit.
        if (what === "denied") {
          assert.deepEqual([mine.quotas[0].limit, mine.quotas[0].remaining, mine.fromBalance], [limit, null, undefined]);
          assert.equal(mine.headers["x-ratelimit-limit"], String(limit));
        }
        outcomes[what] = (outcomes[what] ?? 0) + 1;
      }
      assert.deepEqual(bindings[0].keys, bindings[1].keys);
    }
    for (const what of ["allowed", "denied", "contended", "refused", "unavailable", "unsupported", "invalid"]) assert.ok(outcomes[what] > 0, JSON.stringify(outcomes));
  });

  test("a key that is hashed is counted as Tidegate counts it, and only that is waited for", async () => {
    const bindings = [new Counts(), new Counts()];
    const quota = bindingWindow(5, 60);
    const limiters = [OnBinding, Binding].map((Limiter, nth) => new Limiter({ ...COMMON, binding: bindings[nth], policy: { name: "hashed", quotas: [quota] } }));
    for (const key of ["k".repeat(129), "ü".repeat(100), `sub:${"/".repeat(200)}`, `ip:${"a".repeat(60)}~${"0".repeat(64)}`, "user:1"]) {
      for (const limiter of limiters) assert.equal((await limiter.limit(key)).allowed, true);
      assert.equal(bindings[0].keys.at(-1), bindings[1].keys.at(-1));
    }
    assert.match(bindings[0].keys[0], /^tg1:hashed:fw60000:k{63}~[0-9a-f]{64}$/);
  });

  test("refuses what Tidegate refuses, in the same words", () => {
    const chance = new Chance(SEED);
    const seen = new Set();
    for (let nth = 0; nth < STEPS; nth++) {
      const names = () => (chance.once(4) ? { by: "tenant" } : {});
      const windows = [() => fixedWindow(1 + chance.below(9), chance.from(["10 s", "1 min", "1 s"]), names()), () => window(chance, 1 + chance.below(9), chance.from([10, 60]), names())];
      const others = [() => ((quota) => quota[0](...quota.slice(2)))(counting(chance)), () => concurrency(1, "1 s"), () => block("1 d"), () => balance(), () => "10 / s"];
      const quotas = Array.from({ length: chance.from([0, 1, 1, 1, 1, 2, 9]) }, (_, at) => chance.from(chance.once(5) ? others : windows)() ?? at);
      const groupBy = chance.from([undefined, undefined, "tenant"]);
      const policy = { name: chance.from(["api", "api", "a b"]), quotas, chargeDenied: chance.once(6), groupBy };
      // A text is no quota of a `RateLimiter`, and of two the first is the name of both.
      if (quotas.includes("10 / s")) continue;
      const [mine, other] = [OnBinding, Binding].map((Limiter) => {
        try {
          new Limiter({ ...COMMON, binding: new Counts(), policy });
          return "accepted";
        } catch (error) {
          assert.ok(error instanceof TidegateError || error.name === "TidegateError");
          return [error.kind, error.field, error.message];
        }
      });
      assert.deepEqual(mine, other, `seed ${SEED}`);
      seen.add(mine === "accepted" ? mine : mine[2].replace(/\d+/g, "N"));
    }
    assert.ok(seen.size >= 7, [...seen].join("\n"));
  });

  test("a late answer is a timeout, or contended if others were answered meanwhile", async () => {
    for (const make of [
      (options) => new OnBinding({ ...options, policy: { name: "late", quotas: [bindingWindow(5, 10)] } }),
      (options) => new Binding({ ...options, policy: { name: "late", quotas: [{ fixedWindow: { limit: 5, windowMs: 10_000 } }] } }),
    ]) {
      const hanging = [];
      const binding = { limit: ({ key }) => new Promise((resolve) => (key.endsWith("hangs") ? hanging.push(resolve) : resolve({ success: true }))) };
      const limiter = make({ ...COMMON, binding, failMode: "open", deadlineMs: 40 });
      const late = await limiter.limit("hangs");
      assert.deepEqual([late.error.kind, late.outcome], ["timeout", "failed_open"]);
      assert.equal(late.error.message, "Rate Limiting binding: no answer within 40 ms; the request may have been charged");
      const slow = limiter.limit("hangs");
      assert.equal((await limiter.limit("answers")).allowed, true);
      const { error, outcome } = await slow;
      assert.deepEqual([error.kind, outcome], ["contended", "failed_closed"]);
      assert.equal(error.message, "other requests kept this one from being decided within 40 ms; the request may have been charged");
      for (const resolve of hanging) resolve({ success: true });
      await new Promise(setImmediate);
      assert.equal((await limiter.limit("answers")).allowed, true);
    }
  });

  // On Cloudflare, a client that hangs up ends its request: neither an answer nor a timer arrives there any more.
  test("calls of which cancelled requests leave no trace do not crowd out those of other clients", async (t) => {
    const counts = new Counts();
    const never = new Promise(() => {});
    const binding = { limit: (asked) => (asked.key.endsWith("cancelled") ? never : counts.limit(asked)) };
    const limiter = new OnBinding({ ...COMMON, binding, policy: { name: "cancelled", quotas: [fixedWindow(5, "10 s")] } });
    t.mock.method(globalThis, "setTimeout", () => 0);
    for (let nth = 0; nth < 70_000; nth++) void limiter.limit("cancelled");
    await new Promise(setImmediate);
    t.mock.restoreAll();
    const outcomes = [];
    for (let nth = 0; nth < 6; nth++) outcomes.push((await limiter.limit("user:1")).outcome);
    assert.deepEqual(outcomes, [...Array(5).fill("allowed"), "denied"]);
  });
});
