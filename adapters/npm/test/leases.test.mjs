// Leases on Redis, over REST and over a client: fewer calls, and never more than the limit.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { after, beforeEach, describe, test } from "node:test";
import { promisify } from "node:util";
import { Tidegate as OnUpstash } from "@tidegate/edge";
import { calendarWindow } from "@tidegate/edge/calendar";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { redisServer, upstash } from "./servers.mjs";

const server = await upstash();
const client = new Redis(server.redis);
after(async () => {
  client.disconnect();
  await server.stop();
});
beforeEach(() => server.command("FLUSHALL"));

const common = { platform: "direct", failMode: "closed", deadlineMs: 20_000, onError: () => {}, leases: true };
const stores = {
  upstash: (more) => new OnUpstash({ ...common, url: server.url, token: server.token, ...more }),
  redis: (more) => new OnRedis({ ...common, client, ...more }),
};
const policyOf = (quota, name = "api") => ({ name, quotas: [quota] });
const rules = {
  "a fixed window": { fixedWindow: { limit: 500, windowMs: 86_400_000 } },
  "a sliding window": { slidingWindow: { limit: 500, windowMs: 86_400_000 } },
  "a bucket": { tokenBucket: { capacity: 500, refill: 1, perMs: 86_400_000 } },
  "a month of a zone": calendarWindow({ limit: 500, every: "month", zone: "Europe/Berlin" }),
};

for (const [store, make] of Object.entries(stores)) {
  describe(store, () => {
    for (const [name, quota] of Object.entries(rules)) {
      test(`of 1,000 requests to three borrowers and one limiter without leases, 500 pass by ${name}`, async () => {
        const all = [true, true, true, false].map((leases) => make({ leases, policy: policyOf(quota) }));
        let admitted = 0;
        for (let nth = 0; nth < 1_000; nth++) admitted += Number((await all[nth % 4].limit("user:1")).allowed);
        assert.ok(admitted <= 500, `${admitted} of 500`);
        // What the others hold when the last request comes is unused.
        assert.ok(admitted >= 470, `${admitted} of 500`);
      });
    }

    test("with concurrency, no more than the limit passes", async () => {
      const all = [true, true].map(() => make({ policy: policyOf(rules["a bucket"], "burst") }));
      const verdicts = await Promise.all(Array.from({ length: 2_000 }, (_, nth) => all[nth % 2].limit("user:1")));
      const admitted = verdicts.filter(({ allowed }) => allowed).length;
      assert.ok(admitted <= 500 && admitted >= 350, `${admitted} of 500`);
      assert.deepEqual(verdicts.filter(({ error }) => error), []);
    });

    test("a steady client far from its limit asks once for many requests, and denials ask nothing", async () => {
      const tidegate = make({ policy: policyOf({ fixedWindow: { limit: 100_000, windowMs: 86_400_000 } }, "far") });
      const origins = {};
      for (let nth = 0; nth < 1_000; nth++) {
        const { origin } = await tidegate.limit("user:1");
        origins[origin] = (origins[origin] ?? 0) + 1;
      }
      assert.ok(origins.lease > 900, JSON.stringify(origins));
      const near = make({ policy: policyOf({ fixedWindow: { limit: 2, windowMs: 86_400_000 } }, "near") });
      for (let nth = 0; nth < 3; nth++) await near.limit("user:1");
      const before = await server.billed();
      for (let nth = 0; nth < 50; nth++) {
        const { allowed, origin, retryAfterMs } = await near.limit("user:1");
        assert.deepEqual([allowed, origin, retryAfterMs > 0], [false, "deny_cache", true]);
      }
      assert.equal(await server.billed(), before);
    });

    test("a reset ends the borrower's own denial", async () => {
      const tidegate = make({ policy: policyOf({ fixedWindow: { limit: 1, windowMs: 86_400_000 } }, "reset") });
      const seen = [];
      for (let nth = 0; nth < 3; nth++) seen.push((await tidegate.limit("user:1")).allowed);
      await tidegate.reset("user:1");
      seen.push((await tidegate.limit("user:1")).allowed);
      assert.deepEqual(seen, [true, false, false, true]);
    });

    test("checks with a token, and policies that cannot be lent, are plain calls", async () => {
      const tidegate = make({ policy: policyOf({ fixedWindow: { limit: 10, windowMs: 86_400_000 } }, "plain") });
      const charged = await tidegate.limit("user:1", { estimate: 6 });
      assert.equal(charged.origin, "store");
      await tidegate.settle(charged, { cost: 10 });
      assert.equal((await tidegate.limit("user:1")).allowed, false);
      const log = make({ policy: policyOf({ slidingLog: { limit: 3, windowMs: 86_400_000 } }, "log") });
      const verdicts = [];
      for (let nth = 0; nth < 4; nth++) verdicts.push(await log.limit("user:1"));
      assert.deepEqual(verdicts.map(({ allowed, origin }) => [allowed, origin]), [[true, "store"], [true, "store"], [true, "store"], [false, "store"]]);
    });

    test("a refund is unsupported, because it would also give back what is lent", async () => {
      const tidegate = make({ policy: policyOf({ fixedWindow: { limit: 10, windowMs: 86_400_000 } }, "refund") });
      const verdict = await tidegate.limit("user:1");
      await assert.rejects(tidegate.refund(verdict), { kind: "unsupported" });
    });
  });
}

test("an idle key returns its lease, and goes on borrowing, whatever characters it has", async () => {
  for (const key of ["user:1", "tenant:a* b\n", "sub:ä"]) {
    const asked = [];
    const watched = { call: (...words) => (asked.push(words), client.call(...words)) };
    const policy = policyOf({ fixedWindow: { limit: 1_000, windowMs: 86_400_000 } }, `idle-${key.length}`);
    const leased = new OnRedis({ ...common, client: watched, clock: "caller", minTtlMs: 3_600_000, policy });
    const plain = new OnRedis({ ...common, client, clock: "caller", minTtlMs: 3_600_000, policy, leases: false });
    let now = 1_800_000_000_000;
    const used = async () => 1_000 - (await plain.peek(new Request("https://example.com/"), { key, now })).quotas[0].remaining;
    for (let nth = 0; nth < 100; nth++) await leased.limit(key, { now: (now += 10) });
    const lent = (await used()) - 100;
    assert.ok(lent > 0, `${key}: ${lent} units are lent`);
    // A minute is the longest that a lease lasts; an idle one is returned earlier.
    now += 40_000;
    await leased.limit("another", { now });
    for (let tries = 0; (await used()) > 100 && tries < 100; tries++) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(await used(), 100, key);
    // The key is asked for with a borrower's question again, and not plainly.
    asked.length = 0;
    await leased.limit(key, { now: (now += 10) });
    assert.match(asked[0][3 + Number(asked[0][2])], /^\d+ \d+ 0 60000/, key);
  }
});

test("borrowers of two versions that lend other amounts stay within the limit together", async () => {
  const head = "local function amount(asked, kept, left, shared_by, longest)\n";
  const sha1 = (text) => createHash("sha1").update(text).digest("hex");
  for (const other of ["do return max(min(asked.wanted, left) - kept, 0), longest end", "do return min(1, max(asked.wanted - kept, 0)), min(longest, 700) end", "do return 0, 0 end"]) {
    // The other version's script takes the place of that which the package has.
    const renamed = new Map();
    const another = {
      call: (command, script, ...words) => {
        if (command === "eval" && script.includes(head)) {
          const text = script.replace(head, `${head}${other}\n`);
          renamed.set(sha1(script), sha1(text));
          return client.call(command, text, ...words);
        }
        return client.call(command, renamed.get(script) ?? script, ...words);
      },
    };
    for (const [name, quota] of Object.entries(rules)) {
      const policy = policyOf(quota, `versions-${name.replaceAll(" ", "-")}`);
      const fleet = [client, another, client, another].map((client) => stores.redis({ client, policy }));
      await server.command("FLUSHALL");
      let admitted = 0;
      for (let nth = 0; nth < 1_000; nth++) {
        const { allowed, error } = await fleet[nth % 4].limit("user:1");
        assert.equal(error, undefined, `${other}, ${name}`);
        admitted += Number(allowed);
      }
      assert.ok(admitted <= 500 && admitted >= 400, `${admitted} of 500: ${other}, ${name}`);
      assert.equal(renamed.size, 1);
    }
  }
});

test("borrowers that ask for other amounts stay within the limit together", async () => {
  for (const slice of [1, 500]) {
    for (const [name, quota] of Object.entries(rules)) {
      const policy = policyOf(quota, `amounts-${name.replaceAll(" ", "-")}`);
      const fleet = [50, slice, 50, slice].map((slice) => stores.redis({ policy, leases: { slice } }));
      await server.command("FLUSHALL");
      let admitted = 0;
      for (let nth = 0; nth < 1_000; nth++) {
        const { allowed, error } = await fleet[nth % 4].limit("user:1");
        assert.equal(error, undefined, `${slice}, ${name}`);
        admitted += Number(allowed);
      }
      assert.ok(admitted <= 500 && admitted >= 400, `${admitted} of 500: ${slice}, ${name}`);
    }
  }
});

test("a wrong option says where it is", () => {
  const policy = policyOf(rules["a bucket"]);
  for (const [leases, field] of [
    [{ slices: 1 }, "leases.slices"],
    [{ slice: 0 }, "leases.slice"],
    [{ slice: 1.5 }, "leases.slice"],
    [{ lifetimeMs: 0 }, "leases.lifetimeMs"],
    [{ lifetimeMs: 60_001 }, "leases.lifetimeMs"],
    [{ grace: 51 }, "leases.grace"],
    [{ slice: 5, grace: 6 }, "leases.grace"],
    [{ grace: -1 }, "leases.grace"],
    [{ grace: 0.5 }, "leases.grace"],
    ["yes", "leases"],
  ]) {
    assert.throws(() => stores.redis({ policy, leases }), ({ kind, field: found }) => kind === "invalid" && found === field, field);
  }
  assert.throws(() => stores.redis({ policy, leases: { grase: 1 } }), { field: "leases.grase", message: /did you mean "grace"/ });
  assert.throws(() => stores.redis({ policy, waitUntil: 7 }), { field: "waitUntil" });
  // As in a rules file.
  const small = policyOf({ fixedWindow: { limit: 2, windowMs: 1_000 } });
  assert.throws(() => stores.upstash({ policy: small, leases: { grace: 3 } }), { field: "leases.grace", message: /a grace of 3 is more than the limit of 2; write at most 2/ });
  stores.upstash({ policy: small, leases: { grace: 2 } });
  // It is not lent, so there is no grace.
  stores.upstash({ policy: policyOf({ slidingLog: { limit: 2, windowMs: 1_000 } }), leases: { grace: 3 } });
});

test("requests that find a lease spent wait for the next one, and ask once together", async () => {
  const tidegate = new OnRedis({ ...common, client, policy: policyOf({ fixedWindow: { limit: 10_000_000, windowMs: 86_400_000 } }, "hot"), leases: { slice: 200 } });
  for (let nth = 0; nth < 400; nth++) await tidegate.limit("user:1");
  const before = await server.calls("evalsha");
  const ask = async () => {
    for (let nth = 0; nth < 100; nth++) assert.equal((await tidegate.limit("user:1")).allowed, true);
  };
  await Promise.all(Array.from({ length: 100 }, ask));
  const calls = (await server.calls("evalsha")) - before;
  // 10,000 requests by leases of 200 are 50 calls. Each may come too late for some.
  assert.ok(calls <= 500, `${calls} calls`);
});

test("requests that wait for a lease from a server that is silent end as a timeout, by which the fail mode decides", async () => {
  const own = await redisServer();
  const connection = new Redis(own.url);
  try {
    const policy = policyOf({ fixedWindow: { limit: 10_000_000, windowMs: 86_400_000 } }, "silent");
    const tidegate = new OnRedis({ ...common, client: connection, failMode: "open", deadlineMs: 400, policy });
    for (let nth = 0; nth < 400; nth++) await tidegate.limit("user:1");
    own.halt();
    const verdicts = await Promise.all(Array.from({ length: 100 }, () => tidegate.limit("user:1")));
    const failed = verdicts.filter(({ error }) => error);
    assert.ok(failed.length >= 50, `${failed.length}`);
    assert.deepEqual([...new Set(failed.map(({ error, allowed }) => `${error.kind} ${allowed}`))], ["timeout true"]);
    own.resume();
    for (let nth = 0; nth < 100; nth++) assert.equal((await tidegate.limit("user:1")).error, undefined);
  } finally {
    connection.disconnect();
    await own.stop();
  }
});

test("where requests are apart, leases say that they need waitUntil", async () => {
  const script = `
    globalThis.EdgeRuntime = "edge-runtime";
    const { Tidegate } = await import("@tidegate/edge");
    const options = { url: "https://eu1.upstash.io", token: "t", platform: "vercel", failMode: "closed", policy: { name: "api", quotas: ["1 / s"] }, leases: true };
    new Tidegate({ ...options, waitUntil: () => undefined });
    new Tidegate({ ...options, leases: false });
    try { new Tidegate(options) } catch (error) { console.log(error.kind, error.message) }`;
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { cwd: import.meta.dirname });
  assert.equal(stdout, "invalid waitUntil: missing; leases need it on this runtime: write waitUntil: (work) => context.waitUntil(work)\n");
});

test("what is lent is spent while the server is down, and then the fail mode decides", async () => {
  const sent = { isDown: false };
  const shaky = { call: (...words) => (sent.isDown ? Promise.reject(new Error("connect ECONNREFUSED")) : client.call(...words)) };
  const tidegate = new OnRedis({ ...common, client: shaky, policy: policyOf({ fixedWindow: { limit: 100_000, windowMs: 86_400_000 } }, "down") });
  for (let nth = 0; nth < 200; nth++) await tidegate.limit("user:1");
  sent.isDown = true;
  const verdicts = [];
  for (let nth = 0; nth < 100; nth++) verdicts.push(await tidegate.limit("user:1"));
  const lent = verdicts.filter(({ allowed }) => allowed).length;
  assert.ok(lent >= 1 && lent <= 50, `${lent}`);
  assert.equal(verdicts.at(-1).error.kind, "unavailable");
  sent.isDown = false;
  assert.equal((await tidegate.limit("user:1")).allowed, true);
});

test("a request counts at the time when its key is known, and late ones do not move the borrower's clock", async () => {
  const { now: clock } = Date;
  let now = 1_800_000_000_000;
  try {
    Date.now = () => now;
    let isKnown = Promise.resolve();
    let calls = 0;
    const watched = { call: (...words) => ((calls += 1), client.call(...words)) };
    const identify = async () => (await isKnown, { subject: "alice" });
    const policy = policyOf({ fixedWindow: { limit: 40, windowMs: 60_000 } }, "late");
    const tidegate = new OnRedis({ ...common, client: watched, clock: "caller", minTtlMs: 3_600_000, identify, policy });
    const check = () => tidegate.check(new Request("https://example.com/"), { peer: "192.0.2.1" });
    for (let nth = 0; nth < 12; nth++) assert.equal((await check()).allowed, true);
    // These come in one window, and their key is known in the next.
    let tell;
    isKnown = new Promise((resolve) => (tell = resolve));
    const late = Array.from({ length: 8 }, check);
    now += 60_000;
    tell();
    for (const { allowed, decidedAtMs } of await Promise.all(late)) assert.deepEqual([allowed, decidedAtMs], [true, now]);
    // Others of the same time still have the lease that these were granted.
    const before = calls;
    let admitted = 8;
    for (let nth = 0; nth < 60; nth++) admitted += Number((await check()).allowed);
    assert.equal(admitted, 40);
    assert.ok(calls - before <= 34, `${calls - before} calls`);
    // A time that the caller gives remains.
    const given = await tidegate.check(new Request("https://example.com/"), { peer: "192.0.2.1", now: now + 120_000 });
    assert.equal(given.decidedAtMs, now + 120_000);
  } finally {
    Date.now = clock;
  }
});

describe("a grace", () => {
  const NOW = 1_800_000_000_000;
  const byCaller = { clock: "caller", minTtlMs: 3_600_000 };
  const windowOf = (limit) => ({ fixedWindow: { limit, windowMs: 86_400_000 } });
  const keysOf = (count, name = "user") => Array.from({ length: count }, (_, nth) => `${name}:${nth}`);
  /** A limiter with a grace, and the end of what it has begun in the background. */
  const graced = (make, grace, more) => {
    const begun = [];
    const tidegate = make({ leases: { grace }, waitUntil: (work) => begun.push(work), ...more });
    return { tidegate, begun, told: () => Promise.all(begun.splice(0)) };
  };
  /** The verdicts on keys, one after another. */
  const limited = async (tidegate, keys, options) => {
    const verdicts = [];
    for (const key of keys) verdicts.push(await tidegate.limit(key, options));
    return verdicts;
  };
  const origins = (verdicts) => [...new Set(verdicts.map(({ origin, error }) => error?.kind ?? origin))];
  /** How many commands with a script the server has run. */
  const scripts = async () => (await server.calls("eval")) + (await server.calls("evalsha"));
  /** What is left of each key, as one without leases sees it. */
  const left = async (more, keys) => {
    const plain = stores.redis({ ...more, leases: false });
    const verdicts = await Promise.all(keys.map((key) => plain.peek(new Request("https://example.com/"), { key, now: NOW + 5_000 })));
    return [...new Set(verdicts.map(({ quotas }) => quotas[0].remaining))];
  };

  for (const [store, make] of Object.entries(stores)) {
    describe(store, () => {
      for (const [name, quota] of Object.entries(rules)) {
        test(`admits at most the limit and the grace of each borrower, by ${name}`, async () => {
          const [policy, grace] = [policyOf(quota, "fleet"), 3];
          const fleet = Array.from({ length: 4 }, () => graced(make, grace, { policy }));
          // Others have used all of it.
          await stores.redis({ policy, leases: false }).limit("user:1", { cost: 500 });
          let admitted = 0;
          for (let nth = 0; nth < 20; nth++) {
            const verdicts = await Promise.all([...fleet, ...fleet, ...fleet, ...fleet].map(({ tidegate }) => tidegate.limit("user:1")));
            admitted += verdicts.filter(({ allowed }) => allowed).length;
            await Promise.all(fleet.map(({ told }) => told()));
          }
          assert.equal(admitted, grace * fleet.length);
        });
      }

      test("is told to the store for all keys together, once", async () => {
        const [more, keys] = [{ ...byCaller, policy: policyOf(windowOf(100), `together-${store}`) }, keysOf(40)];
        const { tidegate, begun, told } = graced(make, 1, more);
        const before = await scripts();
        assert.deepEqual(origins(await limited(tidegate, keys, { now: NOW })), ["lease"]);
        // One pause of all keys begins. On a slow machine, it may end before the last one.
        assert.ok(begun.length >= 1 && begun.length < 10, `${begun.length}`);
        await told();
        // A client on TCP writes the commands of one turn at once.
        const ran = (await scripts()) - before;
        assert.ok(store === "redis" ? ran === 40 : ran >= 1 && ran < 10, `${ran} commands`);
        assert.deepEqual(await left(more, keys), [99]);
        assert.deepEqual(origins(await limited(tidegate, ["another"], { now: NOW + 5_000 })), ["lease"]);
        await told();
        assert.deepEqual(await left(more, [...keys, "another"]), [99]);
      });
    });
  }

  test("is repaid by a bucket", async () => {
    const more = { ...byCaller, policy: policyOf({ tokenBucket: { capacity: 5, refill: 1, perMs: 1_000 } }, "repaid") };
    const plain = stores.redis({ ...more, leases: false });
    const now = NOW;
    await plain.limit("user:1", { cost: 5, now });
    for (let nth = 0; nth < 3; nth++) {
      const { tidegate, told } = graced(stores.redis, 1, more);
      assert.equal((await tidegate.limit("user:1", { now })).allowed, true);
      await told();
    }
    // Three are owed, and the next one takes a fourth second. What was told a little later has drained no less.
    const { retryAfterMs } = await plain.limit("user:1", { now });
    assert.ok(retryAfterMs === 4_000, `${retryAfterMs}`);
  });

  test("is not given again to a key that was at its limit, until the key is unused", async () => {
    const more = { ...byCaller, policy: policyOf({ fixedWindow: { limit: 5, windowMs: 60_000 } }, "unused") };
    await stores.redis({ ...more, leases: false }).limit("user:1", { cost: 5, now: NOW });
    const { tidegate, told } = graced(stores.redis, 1, { ...more, leases: { grace: 1, lifetimeMs: 10_000 } });
    const outcomes = [];
    for (const seconds of [0, 15, 30, 45, 90]) {
      const { outcome, origin } = await tidegate.limit("user:1", { now: NOW + seconds * 1_000 });
      outcomes.push(`${outcome} ${origin}`);
      await told();
    }
    assert.deepEqual(outcomes, ["allowed lease", "denied store", "denied store", "denied store", "allowed lease"]);
  });

  test("ends while the store is down, when the fail mode decides, and what was lost is told again", async () => {
    const sent = { isDown: false };
    const shaky = { call: (...words) => (sent.isDown ? Promise.reject(new Error("connect ECONNREFUSED")) : client.call(...words)) };
    const more = { ...byCaller, client: shaky, policy: policyOf(windowOf(100), "lost") };
    const { tidegate, told } = graced(stores.redis, 1, more);
    let now = NOW;
    sent.isDown = true;
    assert.deepEqual(origins(await limited(tidegate, keysOf(5), { now })), ["lease"]);
    await told();
    const later = await limited(tidegate, keysOf(3, "new"), { now });
    assert.deepEqual([origins(later), later.map(({ allowed }) => allowed)], [["unavailable"], [false, false, false]]);
    sent.isDown = false;
    // One report finds out that the store is back, and then the others are told.
    for (let round = 0; round < 3; round++) {
      now += 5_000;
      await limited(tidegate, [`further:${round}`], { now });
      await told();
    }
    const plain = stores.redis({ ...more, client, leases: false });
    const verdicts = await limited(plain, keysOf(5), { now });
    assert.deepEqual(verdicts.map(({ quotas }) => quotas[0].remaining), Array(5).fill(98));
    assert.deepEqual(origins(await limited(tidegate, ["back"], { now })), ["lease"]);
  });

  test("ends when the store is silent", async () => {
    const own = await redisServer();
    const connection = new Redis(own.url);
    try {
      const { tidegate, told } = graced(stores.redis, 1, { client: connection, deadlineMs: 1_000, failMode: "open", policy: policyOf(windowOf(100), "silent") });
      await limited(tidegate, ["user:0"]);
      await told();
      own.halt();
      assert.deepEqual(origins(await limited(tidegate, keysOf(5))), ["lease"]);
      await told();
      const [verdict] = await limited(tidegate, ["another"]);
      assert.deepEqual([verdict.error.kind, verdict.allowed], ["timeout", true]);
    } finally {
      own.resume();
      connection.disconnect();
      await own.stop();
    }
  });

  test("keeps no process alive until it is told", async () => {
    const script = `
      const { Tidegate } = await import("@tidegate/edge/redis");
      let calls = 0;
      const client = { call: () => (calls++, Promise.resolve("")) };
      const tidegate = new Tidegate({ client, platform: "direct", failMode: "closed", policy: { name: "api", quotas: ["5 burst, 1 / s"] }, leases: { grace: 1 } });
      process.on("exit", () => console.log(origin, calls));
      const { origin } = await tidegate.limit("user:1");`;
    const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "--eval", script], { cwd: import.meta.dirname });
    assert.equal(stdout, "lease 0\n");
  });

  test("is a part of the limiter's bounds", () => {
    const { class: kind, ceiling, held, grace, accuracy } = stores.redis({ policy: policyOf(windowOf(100)), leases: { slice: 10, grace: 2 } }).capabilities;
    assert.deepEqual([kind, ceiling, held, grace], ["approximate", "limit + 2 x locations", 20, 2]);
    assert.equal(accuracy, "approximate: limit - 20 x locations (in the first 60000 ms) <= admitted <= limit + 2 x locations");
  });
});
