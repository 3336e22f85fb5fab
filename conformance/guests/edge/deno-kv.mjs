// A small rate-limited app for Deno: one policy per client address, with its counts in Deno KV.

import { Tidegate } from "@tidegate/edge/deno-kv";
import { asks, suite } from "./suite.mjs";

const { DENO_KV, PLATFORM: platform, TIDEGATE_TEST_MODE } = process.env;
const kv = await Deno.openKv(DENO_KV);

const tidegate = new Tidegate({ kv, platform, failMode: "open", policy: { name: "hello", quotas: ["20 burst, 10 / s"] } });

// In tests, virtual time stands still while the store's clock advances, and many requests are in flight.
const inTests = suite((options) => new Tidegate({ kv, failMode: "closed", deadlineMs: 20_000, minTtlMs: 3_600_000, ...options }));

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
