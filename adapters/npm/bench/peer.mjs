// Compares the time of a decision with @upstash/ratelimit, on one redis-server behind one REST endpoint, and shows where the
// two packages decide differently.
//
//   npm run bench -- [--rounds N]

import { parseArgs } from "node:util";
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";
import { Tidegate } from "@tidegate/edge";
import { upstash } from "../test/servers.mjs";

const { values: args } = parseArgs({ options: { rounds: { type: "string", default: "40" } } });
const PER_ROUND = 50;
const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } });

const server = await upstash({ profile: "release" });
const { url, token } = server;
const redis = new Redis({ url, token });

const ours = (quota, options) =>
  new Tidegate({ url, token, platform: "vercel", failMode: "closed", policy: { name: "bench", quotas: [quota] }, ...options });
const theirs = (limiter, options) => new Ratelimit({ redis, limiter, ephemeralCache: false, analytics: false, ...options });

const kinds = {
  "fixed window": [{ algorithm: "fixed_window", limit: 1_000_000, window_ms: 60_000 }, Ratelimit.fixedWindow(1_000_000, "60 s")],
  "sliding window": [{ algorithm: "sliding_window", limit: 1_000_000, window_ms: 60_000 }, Ratelimit.slidingWindow(1_000_000, "60 s")],
  "token bucket": [{ algorithm: "token_bucket", capacity: 1_000_000, refill: 10, per_ms: 1_000 }, Ratelimit.tokenBucket(10, "1 s", 1_000_000)],
};

// The minimum for a client on `fetch`: the same request, sent repeatedly, and the text of its answer.
const floor = async (quota) => {
  const { fetch } = globalThis;
  let body;
  globalThis.fetch = (url, init) => ((body = init.body), fetch(url, init));
  // The first check sends the script. The second one is typical.
  await repeat(2, () => ours(quota).check(request));
  globalThis.fetch = fetch;
  const headers = { authorization: `Bearer ${token}`, "content-type": "application/json" };
  return async () => (await fetch(url, { method: "POST", headers, body })).text();
};

// Both decide on a request by its client address and read how much remains.
const rows = [];
for (const [name, [quota, limiter]] of Object.entries(kinds)) {
  const [own, peer] = [ours(quota), theirs(limiter)];
  const askOwn = async () => {
    const { allowed, quotas } = await own.check(request);
    check(allowed, quotas[0].remaining);
  };
  const askPeer = async () => {
    const { success, remaining } = await peer.limit(request.headers.get("x-vercel-forwarded-for"));
    check(success, remaining);
  };
  rows.push([name, askOwn, askPeer, await floor(quota)]);
}
// Warms up, so that the first row does not pay for compiling the code.
for (const [, ...asks] of rows) for (const ask of asks) await repeat(300, ask);

console.log("| Decisions in sequence | Tidegate, median | @upstash/ratelimit, median | ratio (goal: 0.9) | the request alone | commands billed |");
console.log("|-|-|-|-|-|-|");
for (const [name, askOwn, askPeer, alone] of rows) {
  const [a, b, least] = await medians(askOwn, askPeer, alone);
  const [billedA, billedB] = [await billed(askOwn), await billed(askPeer)];
  console.log(`| ${name} | ${a.toFixed(0)} us | ${b.toFixed(0)} us | ${(a / b).toFixed(2)} | ${least.toFixed(0)} us (${(least / b).toFixed(2)}) | ${billedA} to ${billedB} |`);
}

console.log("\nA blocked key with both deny caches enabled, 100 requests:");
{
  const own = ours({ algorithm: "fixed_window", limit: 1, window_ms: 3_600_000 }, { denyCache: { holdMs: 3_600_000 } });
  const peer = theirs(Ratelimit.fixedWindow(1, "1 h"), { ephemeralCache: new Map() });
  await repeat(3, () => own.check(request));
  await repeat(3, () => peer.limit("blocked"));
  const [a, b] = [await billed(() => own.check(request)), await billed(() => peer.limit("blocked"))];
  console.log(`commands billed per request: Tidegate ${a}, @upstash/ratelimit ${b}`);
}

console.log("\nA fixed window of 10: spend 8, request 5, then 1:");
{
  const own = ours({ algorithm: "fixed_window", limit: 10, window_ms: 86_400_000 });
  const peer = theirs(Ratelimit.fixedWindow(10, "1 d"));
  const word = (yes) => (yes ? "admitted" : "denied");
  const [a, b] = [[], []];
  for (const cost of [8, 5, 1]) {
    a.push(word((await own.check(request, { key: "side-by-side", cost })).allowed));
    b.push(word((await peer.limit("side-by-side", { rate: cost })).success));
  }
  console.log(`Tidegate:           ${a.join(", ")}`);
  console.log(`@upstash/ratelimit: ${b.join(", ")}`);
}
await server.stop();

/** The median time of each in microseconds. They alternate, so that other load on the machine affects all of them. */
async function medians(...asks) {
  const times = asks.map(() => []);
  for (let round = 0; round < Number(args.rounds); round++) {
    for (const [place, ask] of asks.entries()) {
      for (let nth = 0; nth < PER_ROUND; nth++) {
        const began = performance.now();
        await ask();
        times[place].push((performance.now() - began) * 1_000);
      }
    }
  }
  return times.map((each) => each.sort((a, b) => a - b)[each.length >> 1]);
}

async function billed(ask) {
  const before = await server.billed();
  await repeat(100, ask);
  return (await server.billed() - before) / 100;
}

async function repeat(times, ask) {
  for (let nth = 0; nth < times; nth++) await ask();
}

function check(admitted, remaining) {
  if (!admitted || !(remaining > 0)) throw new Error("a request was denied, so the measurement is void");
}
