// A small rate-limited app for Vercel or Netlify: one policy per client address, with its counts in Upstash.

import { Tidegate } from "@tidegate/edge";
import { asks, suite } from "./suite.mjs";

const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token, PLATFORM: platform, TIDEGATE_TEST_MODE } = process.env;

const tidegate = new Tidegate({
  url,
  token,
  platform,
  failMode: "open",
  policy: { name: "hello", quotas: ["20 burst, 10 / s"] },
});

// In tests, virtual time stands still while the database's clock advances, and many requests are in flight.
const inTests = suite((options) => new Tidegate({ url, token, failMode: "closed", clock: "caller", deadlineMs: 20_000, minTtlMs: 3_600_000, ...options }));

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
