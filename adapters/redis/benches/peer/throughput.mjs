// node throughput.mjs PORT: for each line `IN_FLIGHT QUOTAS WARM_UP_MS MS` on standard input, prints decisions per second.
import { createInterface } from "node:readline";
import Redis from "ioredis";
import { RateLimiterRedis, RateLimiterUnion } from "rate-limiter-flexible";

const redis = new Redis({ host: "127.0.0.1", port: Number(process.argv[2]), enableOfflineQueue: false, lazyConnect: true });
await redis.connect();

/** A union charges its limiters one by one, also if another one denies. */
function limited(quotas) {
  const limiters = Array.from({ length: quotas }, (_, nth) =>
    new RateLimiterRedis({ storeClient: redis, points: 1_000_000_000, duration: 60, keyPrefix: `peer${nth}` }));
  return quotas === 1 ? limiters[0] : new RateLimiterUnion(...limiters);
}

async function decide(limiter, until, key) {
  let decisions = 0;
  while (performance.now() < until) {
    await limiter.consume(key);
    decisions += 1;
  }
  return decisions;
}

async function run(limiter, inFlight, ms) {
  const began = performance.now();
  const workers = Array.from({ length: inFlight }, (_, place) => decide(limiter, began + ms, `user-${place}`));
  const decisions = (await Promise.all(workers)).reduce((sum, some) => sum + some, 0);
  return (decisions / (performance.now() - began)) * 1000;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [inFlight, quotas, warmUpMs, ms] = line.split(" ").map(Number);
  const limiter = limited(quotas);
  await run(limiter, inFlight, warmUpMs);
  console.log(await run(limiter, inFlight, ms));
}
redis.disconnect();
