// Whatever reaches a route was charged to the route's rule: generated request targets, over sockets, to the frameworks for Node.js.
//
//   TIDEGATE_SEED=1 STEPS=20000 node --test test/routers.test.mjs

import assert from "node:assert/strict";
import { test } from "node:test";
import { attacked, SERVERS } from "./routers.mjs";

const SEED = Number(process.env.TIDEGATE_SEED ?? Date.now() % 1_000_000_007);
const STEPS = Number(process.env.STEPS ?? 400);

console.log(`TIDEGATE_SEED=${SEED}`);

for (const [name, serverOf] of Object.entries(SERVERS)) {
  test(name, async () => {
    const { reached, uncharged } = await attacked(await serverOf(), SEED, STEPS);
    assert.ok(Object.keys(reached).length >= 3, `TIDEGATE_SEED=${SEED}: it reached only ${JSON.stringify(reached)}`);
    assert.deepEqual(uncharged.slice(0, 10), [], `TIDEGATE_SEED=${SEED}: ${uncharged.length} of ${JSON.stringify(reached)} were not charged`);
  });
}
