// Compares a decision in memory with that of rate-limiter-flexible.

import { Tidegate } from "@tidegate/edge/memory";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { inTurn, perSecond, record } from "../../../conformance/measured/measured.mjs";

const PEER = "rate-limiter-flexible 11.4.0";
const ROUND_MS = 400;
const LIMIT = 1_000_000_000;

const policy = { name: "bench", quotas: [{ fixedWindow: { limit: LIMIT, windowMs: 60_000 } }] };
const own = new Tidegate({ platform: "direct", failMode: "closed", policy });
const peer = new RateLimiterMemory({ points: LIMIT, duration: 60, keyPrefix: "peer" });

const keys = Array.from({ length: 400 }, (_, nth) => `user:${nth}`);
let nth = 0;
const key = () => keys[(nth = (nth + 1) % keys.length)];

const asks = {
  ours: async () => {
    const { allowed, delayMs } = await own.limit(key());
    check(allowed && delayMs === 0);
  },
  theirs: async () => check((await peer.consume(key(), 1)).remainingPoints > 0),
};
// The same loop with an answer that is there: what the measurement itself takes.
const floor = async () => check((await Promise.resolve(policy)) === policy);
const at = { keys: keys.length };
const { ours, theirs, least } = await inTurn({
  ours: () => perSecond(asks.ours, 1, ROUND_MS),
  theirs: () => perSecond(asks.theirs, 1, ROUND_MS),
  least: () => perSecond(floor, 1, ROUND_MS),
});
record({ group: "npm", name: "decisions a second in memory", at, unit: "1/s", aim: { ratio: 1 }, ours, peer: { name: PEER, values: theirs } });
record({ group: "npm", name: "decisions a second in memory, and the loop that asks", at, unit: "1/s", ours, peer: { name: "the loop alone", values: least } });

function check(admitted) {
  if (!admitted) throw new Error("a request was denied, so the measurement is void");
}
