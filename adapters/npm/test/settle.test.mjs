// Estimates and their settlement, over a real redis-server.

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { after, beforeEach, test } from "node:test";
import { Tidegate, TidegateError } from "@tidegate/edge";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { upstash } from "./servers.mjs";

const server = await upstash();
after(() => server.stop());

const events = [];
beforeEach(async () => {
  await server.command("FLUSHALL");
  events.length = 0;
});

const policy = { name: "llm", quotas: [{ fixedWindow: { limit: 100, windowMs: 86_400_000 } }] };
const options = {
  url: server.url,
  token: server.token,
  platform: "vercel",
  failMode: "open",
  deadlineMs: 20_000,
  policy,
  onError: (event) => events.push(event),
};
const tidegate = new Tidegate(options);
const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1", "idempotency-key": "the same" } });

const left = async () => (await tidegate.peek(request)).quotas[0].remaining;
const tokens = () => server.command("KEYS", "*:once:*");
const times = (count, make) => Promise.all(Array.from({ length: count }, make));

test("what a request cost less than its estimate is returned, once", async () => {
  const verdict = await tidegate.check(request, { estimate: 30 });
  assert.deepEqual([verdict.allowed, verdict.replayed, verdict.quotas[0].remaining], [true, false, 70]);
  const settled = await tidegate.settle(verdict, { cost: 12 });
  assert.deepEqual([settled.outcome, settled.replayed, settled.quotas[0].remaining], ["allowed", false, 88]);
  for (const cost of [12, 0, 1_000]) {
    const again = await tidegate.settle(verdict, { cost });
    assert.deepEqual([again.outcome, again.replayed, again.quotas[0].remaining], ["allowed", true, 88]);
  }
  assert.equal(JSON.parse(JSON.stringify(settled)).replayed, false);
  assert.deepEqual(events, []);
});

test("of five requests estimated at 30 of 100, three are admitted; they used 45 each, and the debt denies", async () => {
  const verdicts = await times(5, () => tidegate.check(request, { estimate: 30 }));
  const admitted = verdicts.filter(({ allowed }) => allowed);
  assert.equal(admitted.length, 3);
  // Twice each, all at once.
  const settled = await Promise.all([...admitted, ...admitted].map((verdict) => tidegate.settle(verdict, { cost: 45 })));
  assert.equal(settled.filter(({ replayed }) => replayed).length, 3);
  const indebted = await tidegate.peek(request, { cost: 0 });
  assert.deepEqual([indebted.outcome, indebted.quotas[0].remaining], ["denied", 0]);
  assert.equal((await tidegate.check(request)).response.status, 429);
  // The window's count is in its state: `fw1 <start> <used>;`.
  const [state] = await server.command("KEYS", "*192.0.2.1}");
  assert.match(await server.command("GET", state), /^fw1 \d+ 135;$/);
});

test("a cost of 0 cancels the charge, and without a settlement the estimate stays charged", async () => {
  const cancelled = await tidegate.check(request, { estimate: 30 });
  await tidegate.check(request, { estimate: 40 });
  await tidegate.settle(cancelled, { cost: 0 });
  assert.equal(await left(), 60);
});

test("the package makes a new token for each estimate, and the store remembers it for ten minutes, or as long as told", async () => {
  const verdicts = await times(20, () => tidegate.check(request, { estimate: 1 }));
  assert.equal(new Set(verdicts.map(({ charge }) => charge.token)).size, 20);
  assert.ok(verdicts.every(({ charge, replayed }) => !replayed && charge.cost === 1 && /^[0-9a-f-]{36}$/.test(charge.token)));
  assert.equal(await left(), 80);
  const remembered = await tokens();
  assert.equal(remembered.length, 20);
  const ttl = await server.command("PTTL", remembered[0]);
  assert.ok(ttl > 540_000 && ttl <= 600_000, `${ttl} ms`);
  await server.command("FLUSHALL");
  await tidegate.check(request, { estimate: 1, settleWithinMs: 7_200_000 });
  const longer = await server.command("PTTL", (await tokens())[0]);
  assert.ok(longer > 7_140_000 && longer <= 7_200_000, `${longer} ms`);
});

test("a refund of a charge with a token is a settlement to the rest, and a replay pays out once", async () => {
  const idempotency = { token: "job-7", ttlMs: 600_000 };
  const [first, replay] = [await tidegate.check(request, { cost: 50, idempotency }), await tidegate.check(request, { cost: 50, idempotency })];
  assert.deepEqual([first.replayed, replay.replayed, await left()], [false, true, 50]);
  await tidegate.refund(replay, { cost: 20 });
  await tidegate.refund(first, { cost: 20 });
  await tidegate.refund(replay);
  assert.equal(await left(), 70);
  assert.equal((await tidegate.settle(first, { cost: 99 })).replayed, true);
  assert.equal(await left(), 70);
});

test("a refund returns the whole charge by default, never more, and nothing after a settlement", async () => {
  await tidegate.check(request, { cost: 50 });
  await tidegate.refund(await tidegate.check(request, { estimate: 30 }));
  assert.equal(await left(), 50);
  await tidegate.refund(await tidegate.check(request, { estimate: 30 }), { cost: 45 });
  assert.equal(await left(), 50);
  const settled = await tidegate.settle(await tidegate.check(request, { estimate: 30 }), { cost: 10 });
  await tidegate.refund(settled);
  assert.equal(await left(), 40);
  await tidegate.refund(await tidegate.check(request, { cost: 0, idempotency: { token: "free", ttlMs: 1_000 } }));
  assert.equal(await left(), 40);
});

test("a middleware's refund settles an estimate", async () => {
  const work = [];
  const app = reactRouter(tidegate, () => new Response("hello"), { check: () => ({ estimate: 30 }), refund: () => 20, waitUntil: (promise) => work.push(promise) });
  const response = await app(request);
  assert.deepEqual([response.status, await response.text()], [200, "hello"]);
  await Promise.all(work);
  assert.equal(await left(), 90);
});

const numbers = [-1, 1.5, NaN, Infinity, 1e300, "5", null, 5n, {}, true];
const shown = (value) => `${typeof value} ${String(value)}`;

test("a bad estimate is an invalid request, and charges nothing", async () => {
  const bad = [
    ...[0, -0, ...numbers].map((estimate) => ["estimate", { estimate }]),
    ...[0, ...numbers].map((settleWithinMs) => ["settleWithinMs", { estimate: 5, settleWithinMs }]),
    ["estimate", { estimate: 5, cost: 5 }],
    ["estimate", { estimate: 5, idempotency: { token: "a", ttlMs: 1_000 } }],
  ];
  for (const [field, call] of bad) {
    const what = `${field}: ${Object.values(call).map(shown)}`;
    for (const verdict of [await tidegate.check(request, call), await tidegate.peek(request, call)]) {
      assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.error.kind, verdict.error.field], [false, false, "invalid", field], what);
      assert.deepEqual([verdict.response.status, await verdict.response.json()], [400, { error: "invalid_request" }], what);
    }
  }
  assert.deepEqual([await left(), await tokens()], [100, []]);
  const tooMuch = await tidegate.check(request, { estimate: 101 });
  assert.deepEqual([tooMuch.outcome, tooMuch.response.status, await left()], ["never_admissible", 429, 100]);
});

test("a bad cost is an error of settle, and changes nothing", async () => {
  const verdict = await tidegate.check(request, { estimate: 30 });
  for (const cost of [undefined, ...numbers, Number.MAX_SAFE_INTEGER]) {
    await assert.rejects(tidegate.settle(verdict, { cost }), { name: "TidegateError", kind: "invalid", field: "cost" }, shown(cost));
  }
  for (const actual of [undefined, null, 12]) await assert.rejects(tidegate.settle(verdict, actual), { kind: "invalid", field: "cost" });
  await assert.rejects(tidegate.settle(verdict, { cost: 1, now: "now" }), { kind: "invalid", field: "now" });
  await assert.rejects(tidegate.refund(verdict, { cost: -1 }), { kind: "invalid", field: "cost" });
  assert.ok(events.length > 0 && events.every(({ operation, failedOpen }) => /settle|refund/.test(operation) && !failedOpen));
  assert.equal((await tidegate.settle(verdict, { cost: 31 })).replayed, false);
  assert.equal(await left(), 69);
});

test("a check without an estimate cannot be settled", async () => {
  const verdict = await tidegate.check(request, { cost: 30 });
  assert.equal(verdict.charge, undefined);
  const error = await tidegate.settle(verdict, { cost: 10 }).catch((thrown) => thrown);
  assert.ok(error instanceof TidegateError);
  assert.deepEqual([error.kind, error.field], ["invalid", "verdict"]);
  assert.match(error.message, /check\(request, \{ estimate \}\)/);
  assert.equal(await left(), 70);
});

test("a token that is used again with another cost is a 409, also with failMode open", async () => {
  const idempotency = { token: "job-7", ttlMs: 600_000 };
  const first = await tidegate.check(request, { cost: 10, idempotency });
  const reused = await tidegate.check(request, { cost: 11, idempotency });
  assert.deepEqual([reused.allowed, reused.failedOpen, reused.limited, reused.error.kind], [false, false, false, "token_reused"]);
  assert.deepEqual([reused.response.status, await reused.response.json()], [409, { error: "token_reused" }]);
  assert.deepEqual(events.map(({ operation, kind, failedOpen }) => [operation, kind, failedOpen]), [["check", "token_reused", false]]);
  // It does not settle or refund the charge of the first.
  assert.equal(await tidegate.settle(reused, { cost: 0 }), reused);
  await tidegate.refund(reused);
  assert.equal(await left(), 90);
  assert.equal((await tidegate.settle(first, { cost: 0 })).replayed, false);
});

test("a settlement of a charge that is not remembered is an error", async () => {
  const verdict = await tidegate.check(request, { estimate: 30 });
  await server.command("DEL", ...(await tokens()));
  await assert.rejects(tidegate.settle(verdict, { cost: 10 }), { kind: "unknown_charge" });
  await assert.rejects(tidegate.refund(verdict), { kind: "unknown_charge" });
  await assert.rejects(tidegate.refund(await tidegate.peek(request, { estimate: 5 })), { kind: "unknown_charge" });
  assert.equal(await left(), 70);
  assert.deepEqual(events.map(({ operation, kind }) => [operation, kind]), [["settle", "unknown_charge"], ["refund", "unknown_charge"], ["refund", "unknown_charge"]]);
});

test("a rejected request has nothing to settle, and asks the store nothing", async () => {
  const denied = await tidegate.check(request, { estimate: 101 });
  const invalid = await tidegate.check(request, { estimate: 0 });
  const before = await server.billed();
  assert.equal(await tidegate.settle(denied, { cost: 50 }), denied);
  assert.equal(await tidegate.settle(invalid, { cost: 50 }), invalid);
  assert.equal(await server.billed(), before);
});

test("a request that passed because the store failed is settled if it was charged after all", async () => {
  const down = new Tidegate({ ...options, url: "http://127.0.0.1:1" });
  const passed = await down.check(request, { estimate: 30 });
  assert.equal(passed.failedOpen, true);
  // The store is back, and has no charge.
  assert.equal(await tidegate.settle(passed, { cost: 45 }), passed);
  assert.equal(await left(), 100);
  // The store is back, and only its answer was lost.
  await tidegate.check(request, { cost: 30, idempotency: { token: passed.charge.token, ttlMs: 600_000 } });
  assert.equal((await tidegate.settle(passed, { cost: 45 })).quotas[0].remaining, 55);
  events.length = 0;
  await assert.rejects(down.settle(passed, { cost: 45 }), { kind: "unavailable" });
  assert.deepEqual(events.map(({ operation, kind, failedOpen }) => [operation, kind, failedOpen]), [["settle", "unavailable", false]]);
});

test("no error that a store answers opens, not even one that belongs to another call", async () => {
  const answers = ["REUSED by a check of cost 1", "UNKNOWN charge", "CORRUPT first answer"];
  for (const [answer, kind, status] of [[answers[0], "token_reused", 409], [answers[1], "unknown_charge", 503], [answers[2], "corrupt", 503]]) {
    const odd = createServer((request, response) => request.resume().on("end", () => response.writeHead(400).end(JSON.stringify({ error: answer }))));
    await once(odd.listen(0, "127.0.0.1"), "listening");
    const { error, allowed, response } = await new Tidegate({ ...options, url: `http://127.0.0.1:${odd.address().port}` }).check(request, { estimate: 1 });
    odd.close();
    odd.closeAllConnections();
    assert.deepEqual([error.kind, allowed, response.status], [kind, false, status]);
    assert.equal((await response.text()).includes(kind), true);
  }
});

test("the deny cache forgets a key that is settled", async () => {
  const caching = new Tidegate({ ...options, denyCache: true });
  const verdict = await caching.check(request, { estimate: 90 });
  assert.deepEqual([(await caching.check(request, { cost: 20 })).origin, (await caching.check(request, { cost: 20 })).origin], ["store", "deny_cache"]);
  await caching.settle(verdict, { cost: 10 });
  assert.equal((await caching.check(request, { cost: 20 })).outcome, "allowed");
});

test("time repays a debt, to the millisecond", async () => {
  const bucket = { name: "llm", quotas: [{ tokenBucket: { capacity: 100, refill: 10, perMs: 1_000 } }] };
  const timed = new Tidegate({ ...options, policy: bucket, clock: "caller", minTtlMs: 3_600_000 });
  const now = 1_800_000_000_000;
  const verdicts = await times(3, () => timed.check(request, { estimate: 30, now }));
  for (const verdict of verdicts) await timed.settle(verdict, { cost: 45, now });
  const denied = await timed.check(request, { estimate: 30, now });
  // A debt of 35 takes 3,500 ms, and another 30 take 3,000 ms.
  assert.deepEqual([denied.outcome, denied.retryAfterMs], ["denied", 6_500]);
  assert.equal((await timed.check(request, { estimate: 30, now: now + 6_499 })).allowed, false);
  assert.equal((await timed.check(request, { estimate: 30, now: now + 6_500 })).allowed, true);
});
