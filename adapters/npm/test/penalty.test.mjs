// The README's function does what `penalty` of rate-limiter-flexible does.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { Tidegate } from "@tidegate/edge/memory";
import { Chance } from "./reference.mjs";

const README = readFileSync(new URL("../README.md", import.meta.url), "utf8");
const [, printed] = README.match(/```js\n(async function penalty\(.*?^})\n```/ms);
const [LIMIT, YEAR] = [10, 31_536_000];

test("penalty, as printed, charges a key as rate-limiter-flexible does, also one that has used its limit", async () => {
  const seed = process.env.TIDEGATE_SEED ?? String(Math.floor(Math.random() * 2 ** 32));
  console.log(`TIDEGATE_SEED=${seed}`);
  const chance = new Chance(Number(seed));
  const policy = { name: "penalty", quotas: [{ fixedWindow: { limit: LIMIT, windowMs: YEAR * 1_000 } }] };
  const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy });
  const penalty = new Function("tidegate", `return ${printed}`)(tidegate);
  const peer = new RateLimiterMemory({ points: LIMIT, duration: YEAR });
  const consumed = (key) => peer.consume(key).then(() => true, () => false);
  let exhausted = 0;
  for (let nth = 0; nth < 300; nth++) {
    const key = `key:${nth}`;
    for (let step = 0; step < 12; step++) {
      const points = 1 + chance.below(4);
      if (chance.once(2)) {
        exhausted += Number((await tidegate.limit(key, { cost: 0 })).quotas[0].remaining === 0);
        await Promise.all([penalty(key, points), peer.penalty(key, points)]);
      } else {
        assert.equal((await tidegate.limit(key)).allowed, await consumed(key), `${key}, step ${step}, TIDEGATE_SEED=${seed}`);
      }
    }
  }
  assert.ok(exhausted > 100, "keys without room are among them");
});
