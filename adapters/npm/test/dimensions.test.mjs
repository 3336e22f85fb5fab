// Several keys, concurrency limits and penalties, over a real redis-server.

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { Tidegate } from "@tidegate/edge";
import { Tidegate as OnBlobs } from "@tidegate/edge/netlify-blobs";
import { upstash } from "./servers.mjs";

const server = await upstash();
after(() => server.stop());

const events = [];
beforeEach(async () => {
  await server.command("FLUSHALL");
  events.length = 0;
});

const DAY_MS = 86_400_000;
const NOW = 1_800_000_000_000;
const window = (limit, by) => ({ fixedWindow: { limit, windowMs: DAY_MS }, by });
const options = {
  url: server.url,
  token: server.token,
  platform: "vercel",
  failMode: "open",
  deadlineMs: 20_000,
  onError: (event) => events.push(event),
};
const limiter = (quotas, more = {}) => new Tidegate({ ...options, policy: { name: "api", quotas, ...more } });
const timed = (quotas) => new Tidegate({ ...options, policy: { name: "api", quotas }, clock: "caller", minTtlMs: 3_600_000 });
const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } });
const remaining = (verdict) => verdict.quotas.map((quota) => quota.remaining);
const states = () => server.command("KEYS", "*");

const [alice, bob] = [{ user: "user:alice", tenant: "tenant:acme" }, { user: "user:bob", tenant: "tenant:acme" }];
const both = [window(2, "user"), window(10, "tenant")];

for (const groupBy of [undefined, "tenant"]) {
  test(`a user's denial does not charge the tenant, with the group ${groupBy}`, async () => {
    const tidegate = limiter(both, { groupBy });
    assert.deepEqual(remaining(await tidegate.check(request, { keys: alice })), [1, 9]);
    assert.deepEqual(remaining(await tidegate.check(request, { keys: alice })), [0, 8]);
    const denied = await tidegate.check(request, { keys: alice });
    assert.deepEqual([denied.outcome, denied.quotas[denied.binding].name, remaining(denied)], ["denied", "api-1", [0, 8]]);
    // The order of the object's fields has no meaning.
    const other = await tidegate.check(request, { keys: { tenant: "tenant:acme", user: "user:bob" } });
    assert.deepEqual([other.allowed, remaining(other), other.key, other.keys], [true, [1, 7], undefined, { tenant: "tenant:acme", user: "user:bob" }]);
    assert.deepEqual(remaining(await tidegate.peek(request, { keys: bob })), [1, 7]);
    assert.equal((await states()).length, 3);

    await tidegate.refund(other);
    assert.deepEqual(remaining(await tidegate.peek(request, { keys: bob })), [2, 8]);
    await tidegate.reset(alice);
    assert.deepEqual(remaining(await tidegate.peek(request, { keys: alice })), [2, 10]);
  });
}

test("an estimate with several keys is settled in all of them", async () => {
  const tidegate = limiter([window(50, "user"), window(100, "tenant")]);
  const verdict = await tidegate.check(request, { keys: alice, estimate: 30 });
  const settled = await tidegate.settle(verdict, { cost: 12 });
  assert.deepEqual([remaining(verdict), remaining(settled), settled.keys], [[20, 70], [38, 88], alice]);
  assert.equal((await tidegate.settle(verdict, { cost: 0 })).replayed, true);
});

test("a quota without a dimension counts by the sender, or by `key`", async () => {
  const tidegate = limiter([window(2), window(10, "tenant")]);
  const keys = { tenant: "tenant:acme" };
  const verdict = await tidegate.check(request, { keys });
  assert.deepEqual([remaining(verdict), verdict.keys], [[1, 9], { "": "ip:192.0.2.1", tenant: "tenant:acme" }]);
  assert.deepEqual(remaining(await tidegate.check(request, { key: "ip:192.0.2.1", keys })), [0, 8]);
  assert.deepEqual(remaining(await tidegate.check(request, { key: "other", keys })), [1, 7]);
  await tidegate.reset(verdict.keys);
  assert.deepEqual(remaining(await tidegate.peek(request, { keys })), [2, 10]);
});

test("the only dimension takes a key, its name, or the sender", async () => {
  const tidegate = limiter([window(10, "user")]);
  assert.deepEqual(remaining(await tidegate.check(request, { keys: { user: "user:alice" } })), [9]);
  assert.deepEqual(remaining(await tidegate.check(request, { key: "user:alice" })), [8]);
  assert.deepEqual(remaining(await tidegate.check(request)), [9]);
});

test("names that every object inherits are dimensions like others", async () => {
  for (const name of ["constructor", "__proto__", "toString"]) {
    const tidegate = limiter([window(5, name), window(10, "tenant")]);
    const keys = JSON.parse(`{ "${name}": "user:alice", "tenant": "tenant:acme" }`);
    assert.deepEqual(remaining(await tidegate.check(request, { keys })), [4, 9], name);
    const verdict = await tidegate.check(request, { keys: { tenant: "tenant:acme" } });
    assert.deepEqual([verdict.error.kind, verdict.error.field], ["invalid", `keys.${name}`]);
    await server.command("FLUSHALL");
  }
});

test("hostile keys are an invalid request, and charge nothing", async () => {
  const tidegate = limiter(both);
  const throws = {
    get user() {
      throw new Error("no");
    },
    tenant: "tenant:acme",
  };
  const trap = new Proxy({}, { ownKeys: () => assert.fail("trapped") });
  const bad = [
    ...[null, 5, "user:alice", true, [], ["user:alice", "tenant:acme"], () => alice, Symbol("keys"), {}, new Map(Object.entries(alice))].map((keys) => ({ keys })),
    ...[undefined, null, 5, {}, [], ["user:alice"], "\ud83d", Symbol("user"), { toString: () => "user:alice" }].map((user) => ({ keys: { ...alice, user } })),
    ...[throws, trap, Object.create(alice), { user: "user:alice" }].map((keys) => ({ keys })),
    { keys: JSON.parse(`{ "__proto__": { "user": "user:alice" }, "tenant": "tenant:acme" }`) },
    { key: "user:alice", keys: alice },
    { key: "user:alice" },
    {},
  ];
  for (const [nth, call] of bad.entries()) {
    for (const verdict of [await tidegate.check(request, call), await tidegate.peek(request, call)]) {
      assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.error?.kind], [false, false, "invalid"], `${nth}`);
      assert.match(verdict.error.field, /^(key|keys|options)(\.|$)/, `${nth}`);
      assert.deepEqual([verdict.response.status, await verdict.response.json()], [400, { error: "invalid_request" }]);
    }
    if (![trap, throws, alice].includes(call.keys)) await assert.rejects(tidegate.reset(call.keys ?? call.key), { kind: "invalid" }, `${nth}`);
  }
  assert.deepEqual([await states(), {}.user], [[], undefined]);
  const { error } = await tidegate.check(request, { keys: { user: "user:alice", tennant: "t" } });
  assert.match(error.message, /^keys\.tenant: missing; write keys: \{ user, tenant \}$/);
});

test("what no object inherits is not taken from a polluted prototype", async () => {
  Object.prototype.user = "user:polluted";
  try {
    const verdict = await limiter(both).check(request, { keys: { tenant: "tenant:acme" } });
    assert.deepEqual([verdict.error.kind, verdict.error.field], ["invalid", "keys.user"]);
  } finally {
    delete Object.prototype.user;
  }
});

const slots = (numbers) => ({ concurrency: { limit: 2, lifetimeMs: 60_000, ...numbers } });
const two = [slots()];
const times = (count, make) => Promise.all(Array.from({ length: count }, make));

test("of five requests at once two get a slot; a release frees it, once", async () => {
  const tidegate = limiter(two);
  assert.equal(tidegate.holdsSlots, true);
  const verdicts = await times(5, () => tidegate.check(request));
  const [held, denied] = [verdicts.filter(({ allowed }) => allowed), verdicts.filter(({ allowed }) => !allowed)];
  assert.equal(held.length, 2);
  for (const verdict of denied) {
    assert.deepEqual([verdict.outcome, verdict.retryAfterMs, verdict.response.status, verdict.response.headers.get("retry-after")], ["denied", null, 429, null]);
    assert.equal(await tidegate.release(verdict), verdict);
  }
  assert.equal(held[0].quotas[0].resetAfterMs, null);
  assert.match(held[0].headers["ratelimit-policy"], /^"api";q=2;qu="concurrent-requests"$/);

  const released = await tidegate.release(held[0]);
  assert.deepEqual([released.outcome, released.replayed, remaining(released)], ["allowed", false, [1]]);
  assert.equal((await tidegate.release(held[0])).replayed, true);
  const next = await times(2, () => tidegate.check(request));
  assert.deepEqual(next.map(({ allowed }) => allowed).sort(), [false, true]);
  assert.deepEqual(events, []);
});

test("a settlement and a refund free the slot too, and a free request holds none", async () => {
  const tidegate = limiter([...two, window(100)]);
  const [settled, refunded] = [await tidegate.check(request, { estimate: 30 }), await tidegate.check(request, { cost: 20 })];
  assert.deepEqual(remaining(await tidegate.peek(request)), [0, 50]);
  await tidegate.settle(settled, { cost: 12 });
  await tidegate.refund(refunded);
  assert.deepEqual(remaining(await tidegate.peek(request)), [2, 88]);
  const free = await tidegate.check(request, { cost: 0 });
  assert.equal(await tidegate.release(free), free);
  const kept = await tidegate.check(request, { cost: 8 });
  assert.deepEqual(remaining(await tidegate.release(kept)), [2, 80]);
});

test("a release without a concurrency limit does nothing", async () => {
  const tidegate = limiter([window(10)]);
  const verdict = await tidegate.check(request);
  assert.equal(tidegate.holdsSlots, false);
  assert.equal(await tidegate.release(verdict), verdict);
});

test("a slot is free when its lifetime is over, and returns the cost if the limit says so", async () => {
  for (const [returnsCost, left] of [[false, 70], [true, 100]]) {
    await server.command("FLUSHALL");
    const tidegate = timed([{ concurrency: { limit: 1, lifetimeMs: 1_000, returnsCost } }, window(100)]);
    const held = await tidegate.check(request, { cost: 30, now: NOW });
    assert.equal((await tidegate.check(request, { now: NOW + 999 })).allowed, false);
    assert.deepEqual(remaining(await tidegate.peek(request, { now: NOW + 1_000 })), [1, left]);
    assert.equal((await tidegate.check(request, { now: NOW + 1_000 })).allowed, true);
    // A late release frees no other request's slot. The request has ended, so it costs what it was charged.
    assert.deepEqual(remaining(await tidegate.release(held, { now: NOW + 1_000 })), [0, 69]);
  }
});

test("a release after the lifetime is an error, and what is charged stays charged", async () => {
  const tidegate = limiter([slots({ lifetimeMs: 60 }), window(100)]);
  const held = await tidegate.check(request, { cost: 30 });
  // The store's own clock removes the charge.
  while ((await server.command("KEYS", "*:once:*")).length > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  await assert.rejects(tidegate.release(held), { kind: "unknown_charge" });
  assert.deepEqual(events.map(({ operation, kind }) => [operation, kind]), [["release", "unknown_charge"]]);
  assert.deepEqual(remaining(await tidegate.peek(request)), [2, 70]);
});

test("an idempotency token names the slot, and a retry takes no second one", async () => {
  const tidegate = limiter(two);
  const idempotency = { token: "job-7", ttlMs: 1_000 };
  const [first, retry] = [await tidegate.check(request, { idempotency }), await tidegate.check(request, { idempotency })];
  assert.deepEqual([retry.replayed, remaining(await tidegate.peek(request))], [true, [1]]);
  assert.deepEqual([(await tidegate.release(retry)).replayed, (await tidegate.release(first)).replayed], [false, true]);
});

test("a request that passed because the store failed releases a slot that it may have taken", async () => {
  const down = new Tidegate({ ...options, url: "http://127.0.0.1:1", policy: { name: "api", quotas: two } });
  const passed = await down.check(request);
  assert.equal(passed.failedOpen, true);
  const tidegate = limiter(two);
  assert.equal(await tidegate.release(passed), passed);
  await tidegate.check(request, { idempotency: { token: passed.charge.token, ttlMs: 1_000 } });
  assert.deepEqual(remaining(await tidegate.release(passed)), [2]);
});

test("a penalty blocks longer the second time, and its count is unknown while it does not block", async () => {
  const tidegate = timed([{ fixedWindow: { limit: 2, windowMs: 1_000 } }, { penalty: { baseMs: 5_000, factor: 10, capMs: 600_000 } }]);
  const at = (now) => tidegate.check(request, { now });
  const first = await at(NOW);
  assert.deepEqual([remaining(first), first.quotas[1].resetAfterMs], [[1, null], null]);
  assert.deepEqual([first.headers["x-ratelimit-limit"], first.headers["x-ratelimit-remaining"], first.headers.ratelimit], ["2", "1", `"api-1";r=1;t=1`]);
  await at(NOW);
  const violation = await at(NOW);
  assert.deepEqual([violation.retryAfterMs, violation.quotas[violation.binding].name, violation.quotas[1].remaining], [5_000, "api-2", 0]);
  assert.equal(violation.response.headers.get("retry-after"), "5");
  assert.equal((await at(NOW + 4_999)).retryAfterMs, 1);
  await at(NOW + 5_000);
  await at(NOW + 5_000);
  assert.equal((await at(NOW + 5_000)).retryAfterMs, 50_000);
  assert.equal((await at(NOW + 54_999)).allowed, false);
  assert.equal((await at(NOW + 55_000)).allowed, true);
});

test("a wrong option says where it is and what to write", () => {
  const penalty = (numbers) => ({ penalty: { baseMs: 1_000, factor: 2, capMs: 60_000, ...numbers } });
  const wrong = [
    [{ quotas: [slots({ limit: 1_001 })] }, "policy.quotas[0].concurrency.limit", /1001 is out of range for a concurrency limit/],
    [{ quotas: [slots({ lifetimeMs: 0 })] }, "policy.quotas[0].concurrency.lifetimeMs", /0/],
    [{ quotas: [slots({ lifetime: 5 })] }, "policy.quotas[0].concurrency.lifetime", /did you mean "lifetimeMs"/],
    [{ quotas: [slots({ returnsCost: 1 })] }, "policy.quotas[0].concurrency.returnsCost", /write true or false/],
    [{ quotas: [slots({ returnsCost: true }), window(5, "user")] }, "policy.quotas[0].concurrency.returnsCost", /several dimensions/],
    [{ quotas: [slots({ windowMs: 1 })] }, "policy.quotas[0].concurrency.windowMs", /unknown field/],
    [{ quotas: [{ concurrency: { limit: 2 } }] }, "policy.quotas[0].concurrency.lifetimeMs", /missing/],
    [{ quotas: [window(5), penalty({ factor: 0 })] }, "policy.quotas[1].penalty.factor", /0 is out of range/],
    [{ quotas: [window(5), penalty({ capMs: 5 })] }, "policy.quotas[1].penalty.capMs", /5 is out of range/],
    [{ quotas: [penalty()] }, "policy.quotas[0]", /a penalty counts the denials of other quotas/],
    [{ quotas: [window(5, "user"), penalty()] }, "policy.quotas[1]", /its dimension has none/],
    [{ quotas: [window(5, "no spaces")] }, "policy.quotas[0].by", /cannot be a name/],
    [{ quotas: [window(5, 5)] }, "policy.quotas[0].by", /not a string/],
    [{ quotas: both, groupBy: "region" }, "policy.groupBy", /no quota counts by "region"/],
    [{ quotas: both, groupBy: 5 }, "policy.groupBy", /not a string/],
  ];
  for (const [policy, field, message] of wrong) {
    assert.throws(() => new Tidegate({ ...options, policy: { name: "api", ...policy } }), { name: "TidegateError", kind: "invalid", field, message }, field);
  }
});

test("a store says at construction what it cannot do", () => {
  const blobs = { getWithMetadata() {}, set() {}, delete() {} };
  const make = (quotas) => new OnBlobs({ blobs, platform: "netlify", failMode: "open", policy: { name: "api", quotas } });
  make([window(5, "user")]);
  for (const quotas of [both, two, [window(5), { penalty: { baseMs: 1, factor: 2, capMs: 9 } }]]) {
    assert.throws(() => make(quotas), { kind: "unsupported", message: /^policy: this store does not support/ });
  }
});
