// Compares a decision with rate-limiter-flexible, on one PostgreSQL server, each with a pool of its own by pg.

import { createTable, Tidegate } from "@tidegate/edge/postgres";
import pg from "pg";
import { RateLimiterPostgres } from "rate-limiter-flexible";
import { inTurn, perSecond, record } from "../../../conformance/measured/measured.mjs";
import { postgresServer } from "../test/postgres-server.mjs";

const PEER = "rate-limiter-flexible 11.4.0";
const ROUND_MS = 400;
const LIMIT = 1_000_000_000;
const KEYS = 2_000;

const server = await postgresServer();
/** A pool. The server closes its connections at the end. */
const pool = (more) => new pg.Pool({ connectionString: server.url, max: 10, ...more }).on("error", () => undefined);
const pools = { ours: pool(), durable: pool(), theirs: pool(), relaxed: pool({ options: "-c synchronous_commit=off" }) };
await createTable(pools.ours);

const policy = { name: "bench", quotas: [{ fixedWindow: { limit: LIMIT, windowMs: 60_000 } }] };
const options = { platform: "direct", failMode: "closed", deadlineMs: 30_000 };
const own = new Tidegate({ ...options, client: pools.ours, policy });
const durable = new Tidegate({ ...options, client: pools.durable, policy: { ...policy, name: "durable" }, durable: true });
const peerOn = (storeClient, tableName) =>
  new Promise((resolve, reject) => {
    const peer = new RateLimiterPostgres({ storeClient, storeType: "pool", tableName, points: LIMIT, duration: 60, clearExpiredByTimeout: false }, (error) => (error ? reject(error) : resolve(peer)));
  });
const [peer, relaxed] = [await peerOn(pools.theirs, "peer"), await peerOn(pools.relaxed, "relaxed")];

let keys = 0;
/** The next of many keys, as a server sees its clients. */
const nextKey = () => `user:${(keys = (keys + 1) % KEYS)}`;
const oursOf = (limiter, key) => async () => check((await limiter.limit(key())).quotas?.[0].remaining > 0);
const theirsOf = (limiter, key) => async () => check((await limiter.consume(key())).remainingPoints > 0);

/** Whose keys, and whether a decision waits for the disk. The peer has no option for that: its pool has. */
const ROWS = [
  ["one key", () => "user:42", own, peer, "", PEER, { ratio: 1.5 }],
  [`${KEYS} keys`, nextKey, own, peer, "", PEER, { ratio: 1.5 }],
  ["one key, durable", () => "user:42", durable, peer, "", PEER, undefined],
  [`${KEYS} keys, durable`, nextKey, durable, peer, "", PEER, undefined],
  ["one key", () => "user:42", own, relaxed, ", both with synchronous_commit off", `${PEER}, synchronous_commit off`, undefined],
  [`${KEYS} keys`, nextKey, own, relaxed, ", both with synchronous_commit off", `${PEER}, synchronous_commit off`, undefined],
];
for (const [what, key, limiter, other, how, name, aim] of ROWS) {
  for (const inFlight of [1, 8, 64]) {
    const { ours, theirs } = await inTurn({ ours: () => perSecond(oursOf(limiter, key), inFlight, ROUND_MS), theirs: () => perSecond(theirsOf(other, key), inFlight, ROUND_MS) });
    record({ group: "npm", name: `decisions a second on PostgreSQL, ${what}${how}`, at: { in_flight: inFlight }, unit: "1/s", aim, ours, peer: { name, values: theirs } });
  }
}
await Promise.all(Object.values(pools).map((pool) => pool.end()));
await server.stop();

function check(admitted) {
  if (!admitted) throw new Error("a request was denied, so the measurement is void");
}
