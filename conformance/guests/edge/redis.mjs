// A small rate-limited app for Node.js: one policy per client address, with its counts on Redis, through ioredis.

import { Tidegate } from "@tidegate/edge/redis";
import Redis from "ioredis";
import { asks, suite, withoutPauses } from "./suite.mjs";

const { REDIS_URL, PLATFORM: platform, LEASES, TIDEGATE_TEST_MODE } = process.env;

// A command that has no connection fails at once, and none is sent twice. A connection that does not answer is closed.
const options = { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 60_000 };
const client = new Redis(REDIS_URL, { ...options, retryStrategy: () => 20 });
client.on("error", () => undefined);

const tidegate = new Tidegate({ client, platform, failMode: "open", policy: { name: "hello", quotas: ["20 burst, 10 / s"] } });

// In tests, virtual time stands still while the database's clock advances, and many requests are in flight.
const inTests = withoutPauses((waitUntil) => {
  const leases = LEASES ? { leases: JSON.parse(LEASES), waitUntil } : {};
  return suite((options) => new Tidegate({ client, failMode: "closed", clock: "caller", deadlineMs: 20_000, minTtlMs: 3_600_000, ...leases, ...options }));
});

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
