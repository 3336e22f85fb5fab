// A memory limiter that has counts of as many keys as it may: what it does to further ones.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Tidegate } from "@tidegate/edge/memory";

const [START, MINUTE] = [1_800_000_000_000, 60_000];
const window = (limit) => ({ fixedWindow: { limit, windowMs: MINUTE } });

let nth = 0;
/** A limiter with counts of its own. */
function limiter(quotas, options = {}) {
  const policy = { name: `full-${(nth += 1)}`, quotas };
  return new Tidegate({ platform: "direct", failMode: "open", onError: () => {}, policy, ...options });
}

const times = (count, run) => Array.from({ length: count }, (_, nth) => run(nth));
const admitted = (verdicts) => verdicts.filter(({ allowed }) => allowed).length;
const ask = (tidegate, key, now = START) => tidegate.decide(key, { now });

test("strangers beyond maxKeys get their first request, and a second limiter has its own room", () => {
  const maxKeys = 1_000;
  const [tidegate, second] = [limiter([window(10)], { maxKeys }), limiter([window(1)], { maxKeys })];
  // Each address sends what uses it up, so that no row has anything left.
  for (let nth = 0; nth < 2 * maxKeys; nth++) times(10, () => ask(tidegate, `ip:${nth}`));
  assert.equal(admitted(times(10_000, (nth) => ask(tidegate, `fresh:${nth}`))), 10_000);
  assert.equal(admitted(times(10_000, (nth) => ask(second, `fresh:${nth}`))), 10_000);
});

for (const [name, quota] of Object.entries({
  "a fixed window": window(3),
  "a sliding window": { slidingWindow: { limit: 3, windowMs: MINUTE } },
  "a sliding log": "3 / min",
  "a token bucket": { tokenBucket: { capacity: 3, refill: 1, perMs: MINUTE } },
  "two quotas": undefined,
})) {
  test(`a key that has used its limit is not reset by 100,000 others: ${name}`, () => {
    const tidegate = limiter(quota ? [quota] : [window(3), window(50)], { maxKeys: 1_000 });
    assert.equal(admitted(times(10, () => ask(tidegate, "victim"))), 3);
    for (let nth = 0; nth < 100_000; nth++) assert.ok(ask(tidegate, `other:${nth}`).allowed);
    assert.ok(!ask(tidegate, "victim").allowed);
  });
}

test("with half of the keys used up, further ones reset at most one of them for each 256", () => {
  const [maxKeys, further] = [1_000, 100_000];
  const tidegate = limiter([window(2)], { maxKeys });
  const victims = times(maxKeys / 2, (nth) => `victim:${nth}`);
  let resets = 0;
  for (const key of victims) times(2, () => ask(tidegate, key));
  for (let nth = 0; nth < further; nth++) {
    ask(tidegate, `other:${nth}`);
    // Whoever was reset uses its limit up again.
    if (nth % 500 === 0) for (const key of victims) resets += admitted(times(2, () => ask(tidegate, key))) > 0 ? 1 : 0;
  }
  // (1/2)^8 of the draws have nothing else.
  assert.ok(resets <= 2 * (further / 256), `${resets} of at most ${further / 256}`);
});

test("keys that share counts admit no more than their limits, and none is reset", () => {
  const [maxKeys, limit] = [1_000, 3];
  const tidegate = limiter([window(limit)], { maxKeys, whenFull: "share" });
  times(limit, () => ask(tidegate, "victim"));
  const all = admitted(times(100_000, (nth) => ask(tidegate, `other:${nth % 50_000}`)));
  assert.ok(all <= limit * (maxKeys + maxKeys / 8), `${all} admitted`);
  assert.ok(!ask(tidegate, "victim").allowed);
});

test("deny refuses further keys until others have expired", async () => {
  const tidegate = limiter([window(2)], { maxKeys: 100, whenFull: "deny" });
  assert.equal(admitted(times(100, (nth) => ask(tidegate, `first:${nth}`))), 100);
  const { allowed, error, http } = ask(tidegate, "late");
  assert.deepEqual([allowed, error.kind, http.status], [false, "refused", 503]);
  assert.match(error.message, /counts of 100 keys, and takes no further one; raise maxKeys/);
  assert.deepEqual([ask(tidegate, "first:7").allowed, ask(tidegate, "first:7").allowed], [true, false]);
  for (let nth = 0; nth < 100; nth++) ask(tidegate, "first:7", START + MINUTE + nth);
  assert.ok(ask(tidegate, "late", START + MINUTE).allowed);
});

test("no key loses a slot or a block, and without one to give up a further key is refused", async () => {
  const slots = limiter([{ concurrency: { limit: 2, lifetimeMs: MINUTE } }], { maxKeys: 2 });
  const holders = [await slots.limit("a", { now: START }), await slots.limit("b", { now: START })];
  const late = await slots.limit("late", { now: START });
  assert.deepEqual([late.allowed, late.error?.kind], [false, "refused"]);
  await slots.release(holders[0], { now: START });
  assert.ok((await slots.limit("late", { now: START })).allowed);
  await slots.release(holders[1], { now: START });

  const blocks = limiter([window(5), { block: { capMs: MINUTE } }], { maxKeys: 50 });
  await blocks.block("mallory", MINUTE, { now: START });
  for (let nth = 0; nth < 5_000; nth++) ask(blocks, `other:${nth}`);
  assert.equal(ask(blocks, "mallory").retryAfterMs, MINUTE);
  await blocks.block("late", MINUTE, { now: START });
  assert.ok(!ask(blocks, "late").allowed);
});

test("each dimension of a policy has its own room, and a request that is denied takes none", () => {
  const quotas = [{ ...window(2), by: "user" }, { ...window(3), by: "tenant" }];
  const tidegate = limiter(quotas, { maxKeys: 10 });
  const at = (user, tenant) => tidegate.decide({ user, tenant }, { now: START });
  assert.equal(admitted(times(10, (nth) => at(`user:${nth}`, `tenant:${nth}`))), 10);
  assert.equal(admitted(times(5, (nth) => at(`late:${nth}`, "tenant:late"))), 3);
  // The tenant's count was kept, and its denials have put nobody out.
  const counted = admitted(times(10, (nth) => at(`user:${nth}`, "tenant:late")));
  assert.equal(counted, 0);
});

test("the application is told once", (context) => {
  const told = [];
  const tidegate = limiter([window(2)], { maxKeys: 5, onError: (event) => told.push(event) });
  for (let nth = 0; nth < 100; nth++) ask(tidegate, `other:${nth}`);
  assert.deepEqual(told.map(({ operation, kind, failedOpen }) => [operation, kind, failedOpen]), [["check", "misconfigured", false]]);
  assert.match(told[0].message, /^the memory has counts of 5 keys, and there are more: a further key takes the place of one .*raise maxKeys$/);
  const warn = context.mock.method(console, "warn", () => {});
  const plain = limiter([window(2)], { maxKeys: 5, onError: undefined, whenFull: "share" });
  for (let nth = 0; nth < 100; nth++) ask(plain, `other:${nth}`);
  assert.deepEqual(warn.mock.calls.map(({ arguments: [text] }) => /further keys share counts/.test(text)), [true]);
});

test("wrong options are named", () => {
  for (const [options, field, message] of [
    [{ maxKeys: 0 }, "maxKeys", /at least 1/],
    [{ maxKeys: 1.5 }, "maxKeys", /not a whole number/],
    [{ whenFull: "evicts" }, "whenFull", /did you mean "evict"/],
    [{ maxkeys: 5 }, "maxkeys", /did you mean "maxKeys"/],
  ]) {
    assert.throws(() => limiter([window(1)], options), (error) => error.field === field && message.test(error.message));
  }
});
