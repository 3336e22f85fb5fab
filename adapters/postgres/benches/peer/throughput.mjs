// node throughput.mjs URL: for each line `IN_FLIGHT KEYS WARM_UP_MS MS` on standard input, prints decisions per second.
import { createInterface } from "node:readline";
import pg from "pg";
import { RateLimiterPostgres } from "rate-limiter-flexible";

// As many connections as Tidegate opens.
const pool = new pg.Pool({ connectionString: process.argv[2], max: 4 });
const options = { storeClient: pool, points: 1_000_000_000, duration: 60, tableName: "peer", clearExpiredByTimeout: false };
const limiter = await new Promise((resolve, reject) => {
  const made = new RateLimiterPostgres(options, (error) => (error ? reject(error) : resolve(made)));
});

async function decide(until, keys, from) {
  let decisions = 0;
  for (; performance.now() < until; decisions += 1) await limiter.consume(`user-${(from + decisions) % keys}`);
  return decisions;
}

async function run(inFlight, keys, ms) {
  const began = performance.now();
  const workers = Array.from({ length: inFlight }, (_, place) => decide(began + ms, keys, Math.floor((place * keys) / inFlight)));
  const decisions = (await Promise.all(workers)).reduce((sum, some) => sum + some, 0);
  return (decisions / (performance.now() - began)) * 1000;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [inFlight, keys, warmUpMs, ms] = line.split(" ").map(Number);
  await run(inFlight, keys, warmUpMs);
  console.log(await run(inFlight, keys, ms));
}
await pool.end();
