// Compares a decision in memory with those of other packages.

import { memoryStore } from "@joint-ops/hitlimit/stores/memory";
import { Tidegate } from "@tidegate/edge/memory";
import { MemoryStore } from "express-rate-limit";
import { RateLimiterMemory } from "rate-limiter-flexible";
import { inTurn, perSecond, record, shortened } from "../../../conformance/measured/measured.mjs";

const PEER = "rate-limiter-flexible 11.4.0";
const ROUND_MS = 400;
const LIMIT = 1_000_000_000;
/** Decisions in a round that is timed by the processor. */
const DECISIONS = 300_000;

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

// The processor's time of a decision, which other work of the machine changes least. The others' stores count, and decide nothing.
for (const count of [1, 10_000, 1_000_000]) {
  const names = shuffled(Array.from({ length: count }, (_, nth) => `user:${nth}`));
  const limiter = new Tidegate({ platform: "direct", failMode: "closed", policy: { ...policy, name: `bench-${count}` } });
  const flexible = new RateLimiterMemory({ points: LIMIT, duration: 60, keyPrefix: `peer-${count}` });
  const express = new MemoryStore();
  express.init({ windowMs: 60_000 });
  const hit = memoryStore();
  const each = {
    decide: (name) => check(limiter.decide(name).allowed),
    limit: async (name) => check((await limiter.limit(name)).allowed),
    flexible: async (name) => check((await flexible.consume(name, 1)).remainingPoints > 0),
    express: async (name) => check((await express.increment(name)).totalHits <= LIMIT),
    hit: (name) => check(hit.hit(name, 60_000, LIMIT).count <= LIMIT),
  };
  // All have a count of each key.
  for (const ask of Object.values(each)) for (const name of names) await ask(name);
  const found = await inTurn(Object.fromEntries(Object.entries(each).map(([one, ask]) => [one, () => nanoseconds(ask, names, one === "decide" || one === "hit")])));
  const told = { group: "npm", at: { keys: count }, unit: "ns" };
  const line = (ours, name, values, aim) => record({ ...told, name: `processor time of ${ours} in memory, beside ${name}`, aim, ours: found[ours], peer: { name, values } });
  line("decide", "the store of @joint-ops/hitlimit 1.5.0", found.hit);
  line("limit", PEER, found.flexible, { ratio: 1 });
  line("limit", "the store of express-rate-limit 8.7.5", found.express);
  hit.shutdown();
  express.shutdown();
}

/** The processor's time of one call in nanoseconds. */
async function nanoseconds(ask, names, isAtOnce) {
  const [times, before] = [shortened(DECISIONS), process.cpuUsage()];
  let at = 0;
  for (let nth = 0; nth < times; nth++) {
    at = (at + 1) % names.length;
    if (isAtOnce) ask(names[at]);
    else await ask(names[at]);
  }
  const { user, system } = process.cpuUsage(before);
  return ((user + system) * 1_000) / times;
}

/** In an order that the memory cannot foresee. */
function shuffled(names) {
  for (let last = names.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [names[last], names[other]] = [names[other], names[last]];
  }
  return names;
}

function check(admitted) {
  if (!admitted) throw new Error("a request was denied, so the measurement is void");
}
