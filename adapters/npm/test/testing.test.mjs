// The limiter for the tests of an application.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Tidegate } from "@tidegate/edge/testing";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 10_000 } }] };
const now = 1_800_000_000_000;
const statuses = (tidegate, times) => Array.from({ length: times }, () => tidegate.decide("user:1").outcome);

test("each limiter has counts of its own, which can be forgotten", async () => {
  for (let nth = 0; nth < 3; nth++) {
    const tidegate = new Tidegate({ policy, now });
    assert.deepEqual(statuses(tidegate, 3), ["allowed", "allowed", "denied"]);
    assert.equal((await tidegate.limit("user:2")).key, "user:2");
    tidegate.restart();
    assert.deepEqual(statuses(tidegate, 3), ["allowed", "allowed", "denied"]);
  }
});

test("time passes when it is told to", async () => {
  const tidegate = new Tidegate({ policy, now });
  statuses(tidegate, 2);
  const { retryAfterMs, decidedAtMs } = tidegate.decide("user:1", { now: 5 });
  assert.deepEqual([retryAfterMs, decidedAtMs, tidegate.now], [10_000, now, now]);
  tidegate.advance(9_999);
  assert.equal(tidegate.decide("user:1").allowed, false);
  tidegate.advance(1);
  assert.deepEqual(statuses(tidegate, 3), ["allowed", "allowed", "denied"]);
  const began = Date.now();
  assert.equal((await tidegate.blockUntilReady("user:1", 60_000)).allowed, true);
  assert.equal(tidegate.now, now + 20_000);
  statuses(tidegate, 2);
  assert.equal((await tidegate.blockUntilReady("user:1", 9_000)).allowed, false);
  assert.ok(Date.now() - began < 5_000);
});

test("it denies on demand, charges nothing, and sends what a client would get", async () => {
  const tidegate = new Tidegate({ policy, now });
  tidegate.deny("user:1", { retryAfterMs: 2_500 });
  const verdict = await tidegate.check(new Request("http://localhost/"), { key: "user:1" });
  assert.deepEqual([verdict.outcome, verdict.retryAfterMs, verdict.response.status, verdict.headers["retry-after"]], ["denied", 2_500, 429, "3"]);
  assert.equal((await tidegate.limit("user:2")).allowed, true);
  tidegate.advance(2_500);
  assert.deepEqual(statuses(tidegate, 3), ["allowed", "allowed", "denied"]);
  tidegate.deny();
  assert.equal((await tidegate.limit("user:3")).allowed, false);
  tidegate.recover();
  assert.equal((await tidegate.limit("user:3")).allowed, true);
});

test("it fails on demand, and the fail mode decides", async () => {
  for (const [failMode, allowed, status] of [["open", true, undefined], ["closed", false, 503]]) {
    const events = [];
    const tidegate = new Tidegate({ policy, now, failMode, onError: (event) => events.push(event) });
    tidegate.fail();
    const verdict = await tidegate.limit("user:1");
    assert.deepEqual([verdict.allowed, verdict.failedOpen, verdict.error.kind, verdict.response?.status], [allowed, allowed, "unavailable", status]);
    assert.deepEqual(events.map(({ kind, failedOpen }) => [kind, failedOpen]), [["unavailable", allowed]]);
    tidegate.fail("corrupt");
    assert.equal((await tidegate.limit("user:1")).allowed, false);
    await assert.rejects(tidegate.reset("user:1"), { kind: "corrupt" });
    tidegate.recover();
    assert.equal((await tidegate.limit("user:1")).quotas[0].remaining, 1);
  }
});

test("estimates, refunds and slots work", async () => {
  const tidegate = new Tidegate({ now, policy: { name: "slots", quotas: [{ concurrency: { limit: 1, lifetimeMs: 60_000 } }] } });
  const verdict = await tidegate.limit("user:1");
  assert.equal((await tidegate.limit("user:1")).allowed, false);
  await tidegate.release(verdict);
  assert.equal((await tidegate.limit("user:1")).allowed, true);
  const metered = new Tidegate({ now, policy: { name: "tokens", quotas: [{ fixedWindow: { limit: 100, windowMs: 60_000 } }] } });
  const charged = await metered.limit("user:1", { estimate: 40 });
  assert.equal((await metered.settle(charged, { cost: 10 })).quotas[0].remaining, 90);
  await metered.refund(await metered.limit("user:1", { cost: 5 }), { cost: 5 });
  assert.equal((await metered.limit("user:1", { cost: 0 })).quotas[0].remaining, 90);
});

test("what is mistyped is an error", () => {
  assert.throws(() => new Tidegate({ policy, nwo: 1 }), { field: "nwo", message: /did you mean "now"\?/ });
  assert.throws(() => new Tidegate({ policy, now: "now" }), { field: "now" });
  const tidegate = new Tidegate({ policy });
  assert.throws(() => tidegate.fail("down"), { field: "kind", message: /write unavailable or timeout or/ });
  assert.throws(() => tidegate.advance(-1), { field: "ms" });
  assert.throws(() => tidegate.deny("user:1", { retryAfterMs: 0.5 }), { field: "retryAfterMs" });
});
