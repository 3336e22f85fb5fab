// A limiter caches denials as a gate does, which `core-gate-around.test.mjs` holds to the core.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Gate } from "@tidegate/edge/gate";
import { Tidegate } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { Chance, seeded } from "./reference.mjs";
import { redisServer } from "./servers.mjs";

const SEED = seeded();

const server = await redisServer();
const client = new Redis(server.url);
after(async () => {
  client.disconnect();
  await server.stop();
});

const options = { client, clock: "caller", minTtlMs: 3_600_000, deadlineMs: 20_000, onError: () => {} };

for (const [name, quota, ruled] of [
  ["a window", { fixedWindow: { limit: 4, windowMs: 10_000 } }, { algorithm: "fixed_window", limit: 4, window_ms: 10_000 }],
  ["a bucket", { tokenBucket: { capacity: 4, refill: 1, perMs: 2_000 } }, { algorithm: "token_bucket", capacity: 4, refill: 1, per_ms: 2_000 }],
]) {
  test(`denials of ${name} are cached as by the core, for any order of checks, settlements and times`, async () => {
    const own = new Tidegate({ ...options, platform: "direct", failMode: "closed", denyCache: { holdMs: 3_000, capacity: 4 }, policy: { name: `own-${ruled.algorithm}`, quotas: [quota] } });
    const limits = { [`core-${ruled.algorithm}`]: { quotas: [ruled] } };
    const rules = { stores: { default: { deny_cache: { hold_ms: 3_000, capacity: 4 } } }, limits, rules: [{ limits: Object.keys(limits) }] };
    const gate = Gate.fromRules(rules, { platform: "direct", stores: { default: (limit) => new Tidegate({ ...options, ...limit }) } });
    const chance = new Chance(SEED);
    const draw = (below) => chance.below(below);
    const request = new Request("https://example.com/");
    const charged = [];
    const seen = {};
    let now = 1_800_000_000_000;
    for (let step = 0; step < 6_000; step++) {
      now += draw(12) === 0 ? draw(3_000) : draw(20);
      if (draw(15) === 0) now -= draw(4_000);
      const key = `user:${draw(6)}`;
      if (charged.length > 0 && draw(8) === 0) {
        const [ours, theirs] = charged.splice(draw(charged.length), 1)[0];
        await Promise.all([own.settle(ours, { cost: 0, now }), gate.settle(theirs, { cost: 0, now })]);
        continue;
      }
      const cost = 1 + draw(2);
      const asked = draw(10) === 0 ? { estimate: cost, now } : { cost, now };
      const [ours, theirs] = await Promise.all([own.limit(key, asked), gate.check(request, { key, ...asked })]);
      const told = ({ allowed, origin, retryAfterMs, decidedAtMs }) => ({ allowed, origin, retryAfterMs, decidedAtMs });
      assert.deepEqual({ step, ...told(ours) }, { step, ...told(theirs) });
      if (ours.allowed && asked.estimate) charged.push([ours, theirs]);
      seen[ours.origin] = (seen[ours.origin] ?? 0) + 1;
    }
    assert.ok(seen["deny_cache"] > 300 && seen["store"] > 300, JSON.stringify(seen));
  });
}
