// node throughput.mjs PORT IN_FLIGHT DURATION_MS: prints decisions per second.
import Redis from "ioredis";
import { RateLimiterRedis } from "rate-limiter-flexible";

const [port, inFlight, durationMs] = process.argv.slice(2).map(Number);
const redis = new Redis({ host: "127.0.0.1", port, enableOfflineQueue: false, lazyConnect: true });
await redis.connect();
const limiter = new RateLimiterRedis({ storeClient: redis, points: 1_000_000_000, duration: 60, keyPrefix: "peer" });

async function decide(until, key) {
  let decisions = 0;
  while (performance.now() < until) {
    await limiter.consume(key);
    decisions += 1;
  }
  return decisions;
}

async function run(ms) {
  const began = performance.now();
  const workers = Array.from({ length: inFlight }, (_, place) => decide(began + ms, `user-${place}`));
  const decisions = (await Promise.all(workers)).reduce((sum, some) => sum + some, 0);
  return (decisions / (performance.now() - began)) * 1000;
}

await run(500);
console.log(Math.round(await run(durationMs)));
redis.disconnect();
