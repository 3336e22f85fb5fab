// node throughput.mjs URL: for each line `IN_FLIGHT WARM_UP_MS MS` on standard input, prints decisions per second.
import { createInterface } from "node:readline";
import pg from "pg";
import { RateLimiterPostgres } from "rate-limiter-flexible";

// As many connections as Tidegate opens.
const pool = new pg.Pool({ connectionString: process.argv[2], max: 4 });
const options = { storeClient: pool, points: 1_000_000_000, duration: 60, tableName: "peer", clearExpiredByTimeout: false };
const limiter = await new Promise((resolve, reject) => {
  const made = new RateLimiterPostgres(options, (error) => (error ? reject(error) : resolve(made)));
});

async function decide(until, key) {
  let decisions = 0;
  while (performance.now() < until) {
    await limiter.consume(key);
    decisions += 1;
  }
  return decisions;
}

async function run(inFlight, ms) {
  const began = performance.now();
  const workers = Array.from({ length: inFlight }, (_, place) => decide(began + ms, `user-${place}`));
  const decisions = (await Promise.all(workers)).reduce((sum, some) => sum + some, 0);
  return (decisions / (performance.now() - began)) * 1000;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [inFlight, warmUpMs, ms] = line.split(" ").map(Number);
  await run(inFlight, warmUpMs);
  console.log(await run(inFlight, ms));
}
await pool.end();
