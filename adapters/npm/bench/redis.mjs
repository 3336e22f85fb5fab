// Compares a decision with rate-limiter-flexible, on one redis-server, each with a client of its own by ioredis.

import { Tidegate } from "@tidegate/edge/redis";
import { Redis } from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";
import { inTurn, perSecond, record } from "../../../conformance/measured/measured.mjs";
import { redisServer } from "../test/servers.mjs";

const PEER = "rate-limiter-flexible 11.4.0";
const ROUND_MS = 400;
const LIMIT = 1_000_000_000;
/** A round of many keys, which each are asked about some times. */
const LONG_ROUND_MS = 1_500;
const KEYS = 20_000;
const IN_FLIGHT = 64;

const server = await redisServer();
const connection = { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, lazyConnect: true };
const [ourClient, theirClient] = [new Redis(server.url, connection), new Redis(server.url, connection)];
await Promise.all([ourClient.connect(), theirClient.connect()]);

const policy = { name: "bench", quotas: [{ fixedWindow: { limit: LIMIT, windowMs: 60_000 } }] };
const options = { client: ourClient, platform: "direct", failMode: "closed", deadlineMs: 30_000 };
const own = new Tidegate({ ...options, policy });
// Its name tells its counts from those of the other.
const leased = new Tidegate({ ...options, policy: { ...policy, name: "leased" }, leases: { slice: 1_000 } });
const peer = new RateLimiterRedis({ storeClient: theirClient, points: LIMIT, duration: 60, keyPrefix: "peer" });

const graced = new Tidegate({ ...options, policy: { ...policy, name: "graced" }, leases: { slice: 1_000, grace: 1 } });
/** The next of many keys, as a server sees its clients. */
const nextKey = () => `user:${(keys = (keys + 1) % KEYS)}`;
let keys = 0;

const asks = {
  ours: async () => {
    const { allowed, quotas } = await own.limit("user:42");
    check(allowed && quotas[0].remaining > 0);
  },
  leased: async () => check((await leased.limit("user:42")).allowed),
  graced: async () => check((await graced.limit(nextKey())).allowed),
  plain: async () => check((await own.limit(nextKey())).allowed),
  theirsOfMany: async () => check((await peer.consume(nextKey())).remainingPoints > 0),
  theirs: async () => check((await peer.consume("user:42")).remainingPoints > 0),
};

const MEASURED = [
  { name: "decisions a second on Redis over TCP", ask: asks.ours, aims: { 64: { ratio: 1.2 } } },
  { name: "decisions a second on Redis over TCP, leased", ask: asks.leased, aims: {} },
];
// One after the other, because V8 optimises what both run for what it has run.
for (const { name, ask, aims } of MEASURED) {
  for (const inFlight of [1, 8, 64, 512]) {
    const { ours, theirs } = await inTurn({ ours: () => perSecond(ask, inFlight, ROUND_MS), theirs: () => perSecond(asks.theirs, inFlight, ROUND_MS) });
    record({ group: "npm", name, at: { in_flight: inFlight }, unit: "1/s", aim: aims[inFlight], ours, peer: { name: PEER, values: theirs } });
  }
}
const { ours, plain, theirs } = await inTurn({
  ours: () => perSecond(asks.graced, IN_FLIGHT, LONG_ROUND_MS),
  plain: () => perSecond(asks.plain, IN_FLIGHT, LONG_ROUND_MS),
  theirs: () => perSecond(asks.theirsOfMany, IN_FLIGHT, LONG_ROUND_MS),
});
const many = { group: "npm", at: { in_flight: IN_FLIGHT }, unit: "1/s" };
const name = `decisions a second on Redis over TCP, ${KEYS} keys`;
record({ ...many, name: `${name}, leased with a grace`, aim: { ratio: 5 }, ours, peer: { name: PEER, values: theirs } });
record({ ...many, name, ours: plain, peer: { name: PEER, values: theirs } });
ourClient.disconnect();
theirClient.disconnect();
await server.stop();

function check(admitted) {
  if (!admitted) throw new Error("a request was denied, so the measurement is void");
}
