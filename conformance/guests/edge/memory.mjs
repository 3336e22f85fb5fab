// A small rate-limited app for one process: one policy per client address, with its counts in memory.

import { Tidegate } from "@tidegate/edge/memory";
import { asks, suite } from "./suite.mjs";

const { PLATFORM: platform, TIDEGATE_TEST_MODE } = process.env;

const tidegate = new Tidegate({ platform, failMode: "closed", policy: { name: "hello", quotas: ["20 burst, 10 / s"] } });

const inTests = suite((options) => new Tidegate({ failMode: "closed", ...options }));

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
