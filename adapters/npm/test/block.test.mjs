// Keys that are blocked by hand.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Tidegate as Upstash } from "@tidegate/edge";
import { Tidegate as Memory } from "@tidegate/edge/memory";
import { Tidegate as Testing } from "@tidegate/edge/testing";
import { upstash } from "./servers.mjs";

const COMMON = { platform: "direct", failMode: "closed", onError: () => undefined };
const policy = (name) => ({ name, quotas: [{ fixedWindow: { limit: 5, windowMs: 60_000 } }, { block: { capMs: 3_600_000 } }] });

test("a block denies its key until its end, and a block of 0 ends it", async () => {
  const tidegate = new Testing({ policy: policy("ends"), now: 1_800_000_000_000 });
  await tidegate.block("user:1", 90_000, { now: tidegate.now });
  const { outcome, retryAfterMs } = await tidegate.limit("user:1");
  assert.deepEqual([outcome, retryAfterMs], ["denied", 90_000]);
  assert.equal((await tidegate.limit("user:2")).allowed, true);
  tidegate.advance(89_999);
  assert.equal((await tidegate.limit("user:1")).retryAfterMs, 1);
  tidegate.advance(1);
  assert.equal((await tidegate.limit("user:1")).allowed, true);
  await tidegate.block("user:1", 90_000);
  await tidegate.block("user:1", 0);
  assert.equal((await tidegate.limit("user:1")).allowed, true);
});

test("a block is at most as long as the policy says", async () => {
  const tidegate = new Testing({ policy: policy("longest") });
  await tidegate.block("user:1", 9_000_000);
  assert.equal((await tidegate.limit("user:1")).retryAfterMs, 3_600_000);
});

test("a limiter says what its store supports", () => {
  const { capabilities } = new Memory({ ...COMMON, policy: policy("supported") });
  const yes = ["costs", "charge_denied", "peek", "refund", "reset", "block", "grant", "idempotency"];
  assert.deepEqual(Object.keys(capabilities), ["class", "ceiling", "held", "grace", "accuracy", "algorithms", "max_quotas", "dimensions", ...yes, "round_trips"]);
  assert.deepEqual(yes.filter((name) => capabilities[name] !== true), []);
});

describe("what cannot be blocked says what to write", () => {
  const without = new Memory({ ...COMMON, policy: { name: "without", quotas: ["5 / min"] } });
  test("a policy without a place for blocks", () => assert.rejects(without.block("a", 1), { kind: "invalid", message: /add a `block`/ }));
  const tidegate = new Memory({ ...COMMON, policy: policy("invalid") });
  test("no time", () => assert.rejects(tidegate.block("a"), { kind: "invalid", field: "ms" }));
  test("no key", () => assert.rejects(tidegate.block(undefined, 1), { kind: "invalid", field: "key" }));
  test("a block without an end", () => {
    const quotas = [{ block: {} }];
    assert.throws(() => new Memory({ ...COMMON, policy: { name: "no-cap", quotas } }), { field: "policy.quotas[0].block.capMs" });
  });
});

test("a block counts for all hosts, and denials are asked for again after it ends", async () => {
  const server = await upstash();
  try {
    const { url, token } = server;
    const make = () => new Upstash({ url, token, ...COMMON, policy: policy("hosts"), denyCache: true });
    const [one, other] = [make(), make()];
    await one.block("user:1", 600_000);
    assert.equal((await other.limit("user:1")).allowed, false);
    await other.block("user:1", 0);
    assert.equal((await other.limit("user:1")).allowed, true);
  } finally {
    await server.stop();
  }
});
