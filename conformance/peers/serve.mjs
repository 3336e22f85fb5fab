// Answers the suite's checks with a peer:
//
//   node serve.mjs --peer NAME [--redis URL] [--postgres URL] [--url URL --token TOKEN] [--clock FILE]
//
// It prints its address, and ends when standard input closes.

import { clockIn } from "./clock.mjs";
import { createHash } from "node:crypto";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { parseArgs } from "node:util";
import { Redis } from "ioredis";
import pg from "pg";
import { limiters } from "./limiters.mjs";

const { values: args } = parseArgs({
  options: {
    peer: { type: "string" },
    redis: { type: "string" },
    postgres: { type: "string" },
    url: { type: "string" },
    token: { type: "string" },
    clock: { type: "string" },
    "test-mode": { type: "boolean", default: false },
  },
});

const redis = args.redis && new Redis(args.redis);
const postgres = args.postgres && new pg.Pool({ connectionString: args.postgres }).on("error", () => undefined);
const limiterOf = limiters[args.peer]({ redis, postgres, url: args.url, token: args.token });
const until = clockIn(args.clock);
/** The limiters so far. Each fixture has its own, because its keys have a prefix of their own. */
const made = new Map();

async function decide({ policy, key, cost = 1, now_ms }) {
  until(now_ms);
  const name = JSON.stringify([policy, key.slice(0, key.indexOf(".") + 1)]);
  // A table may have room for so many characters of a key, and no more.
  const prefix = () => createHash("sha256").update(name).digest("hex").slice(0, 16);
  if (!made.has(name)) made.set(name, limiterOf(policy.quotas[0], prefix()));
  const limiter = await made.get(name);
  return limiter(key, cost);
}

const server = createServer(async (request, response) => {
  let status, answer;
  try {
    const body = await text(request);
    const { allowed, retryAfterMs } = request.url === "/_tidegate/check" ? await decide(JSON.parse(body)) : { allowed: true };
    status = allowed ? 200 : 429;
    answer = {
      decision: {
        status: allowed ? "allowed" : "denied",
        binding: 0,
        quotas: [],
        retry_after_ms: allowed || retryAfterMs === undefined ? null : Math.max(0, Math.round(retryAfterMs)),
        delay_ms: 0,
      },
    };
  } catch (error) {
    status = 500;
    answer = { error: { kind: "peer", message: String(error?.message ?? error) } };
  }
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
