// Compares a decision with @upstash/ratelimit, on one redis-server behind one REST endpoint.

import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";
import { Tidegate } from "@tidegate/edge";
import { inTurn, median, perSecond, record, shortened } from "../../../conformance/measured/measured.mjs";
import { upstash } from "../test/servers.mjs";

const PEER = "@upstash/ratelimit 2.2.0";
/** Sequential decisions in a round. */
const CALLS = 300;
const ROUND_MS = 400;
const request = new Request("https://example.com/", { headers: { "x-vercel-forwarded-for": "192.0.2.1" } });

const server = await upstash({ profile: "release" });
const { url, token } = server;
const redis = new Redis({ url, token });

const ours = (quota, options) =>
  new Tidegate({ url, token, platform: "vercel", failMode: "closed", policy: { name: "bench", quotas: [quota] }, ...options });
const theirs = (limiter, options) => new Ratelimit({ redis, limiter, ephemeralCache: false, analytics: false, ...options });

const kinds = {
  "fixed window": [{ fixedWindow: { limit: 1_000_000, windowMs: 60_000 } }, Ratelimit.fixedWindow(1_000_000, "60 s")],
  "sliding window": [{ slidingWindow: { limit: 1_000_000, windowMs: 60_000 } }, Ratelimit.slidingWindow(1_000_000, "60 s")],
  "token bucket": [{ tokenBucket: { capacity: 1_000_000, refill: 10, perMs: 1_000 } }, Ratelimit.tokenBucket(10, "1 s", 1_000_000)],
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
const asksOwn = (own) => async () => {
  const { allowed, quotas } = await own.check(request);
  check(allowed, quotas?.[0].remaining);
};
const asksPeer = (peer) => async () => {
  const { success, remaining } = await peer.limit(request.headers.get("x-vercel-forwarded-for"));
  check(success, remaining);
};

const rows = [];
for (const [name, [quota, limiter]] of Object.entries(kinds)) {
  rows.push([name, asksOwn(ours(quota)), asksPeer(theirs(limiter)), await floor(quota)]);
}
// Warms up, so that the first row does not pay for compiling the code.
for (const [, ...asks] of rows) for (const ask of asks) await repeat(300, ask);

for (const [name, own, peer, alone] of rows) {
  const { ours, theirs, least } = await inTurn({ ours: () => us(own), theirs: () => us(peer), least: () => us(alone) });
  const what = `a decision, ${name}, one after another`;
  record({ group: "npm", name: what, unit: "us", aim: { ratio: 0.9 }, ours, peer: { name: PEER, values: theirs } });
  record({ group: "npm", name: `${what}, and its request`, unit: "us", ours, peer: { name: "the same request by a bare fetch", values: least } });
  counted(`commands billed for a decision, ${name}`, await billed(own), await billed(peer));
}

// The peer's client sends calls that are in flight together as one request.
const BATCHED = `${PEER}, in batches`;
const [window, limiter] = kinds["fixed window"];
// Nobody waits for an answer here, and hundreds of requests in flight take longer than the default.
const [own, peer] = [asksOwn(ours(window, { deadlineMs: 30_000 })), asksPeer(theirs(limiter))];
for (const inFlight of [1, 8, 64, 512]) {
  const { ours, theirs } = await inTurn({ ours: () => perSecond(own, inFlight, ROUND_MS), theirs: () => perSecond(peer, inFlight, ROUND_MS) });
  const at = { in_flight: inFlight };
  record({ group: "npm", name: "decisions a second, fixed window", at, unit: "1/s", ours, peer: { name: BATCHED, values: theirs } });
}

{
  const own = ours({ fixedWindow: { limit: 1, windowMs: 3_600_000 } }, { denyCache: { holdMs: 3_600_000 } });
  const peer = theirs(Ratelimit.fixedWindow(1, "1 h"), { ephemeralCache: new Map() });
  await repeat(3, () => own.check(request));
  await repeat(3, () => peer.limit("blocked"));
  counted("commands billed for a denial, with both deny caches", await billed(() => own.check(request)), await billed(() => peer.limit("blocked")));
}

{
  // A leased verdict does not know what remains.
  const own = ours({ fixedWindow: { limit: 10_000, windowMs: 60_000 } }, { leases: true });
  const leased = async () => check((await own.limit("leased")).allowed, 1);
  counted("commands billed for a decision, fixed window, with leases", await billed(leased), await billed(rows[0][2]));
}
await server.stop();

function counted(name, our, their) {
  record({ group: "npm", name, unit: "count", ours: [our], peer: { name: PEER, values: [their] } });
}

/** The median time of a call in microseconds. */
async function us(ask) {
  const times = [];
  for (let nth = 0; nth < shortened(CALLS); nth++) {
    const began = performance.now();
    await ask();
    times.push((performance.now() - began) * 1_000);
  }
  return median(times);
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
