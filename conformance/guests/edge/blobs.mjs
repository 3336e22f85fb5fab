// A small rate-limited app for Netlify's edge: one policy per client address, with its counts in the site's Blobs.

import { getStore } from "@netlify/blobs";
import { Tidegate } from "@tidegate/edge/netlify-blobs";
import { asks, suite } from "./suite.mjs";

const { PLATFORM: platform, TIDEGATE_TEST_MODE } = process.env;
const blobs = getStore({ name: "tidegate", consistency: "strong" });

const tidegate = new Tidegate({
  blobs,
  platform,
  failMode: "open",
  policy: { name: "hello", quotas: ["10 / min"] },
});

const inTests = suite((options) => new Tidegate({ blobs, failMode: "closed", deadlineMs: 20_000, ...options }));

/** @param {Request} request */
export default async function app(request) {
  if (asks(request, TIDEGATE_TEST_MODE)) return inTests(request);
  const verdict = await tidegate.check(request);
  return verdict.response ?? verdict.onto(new Response("hello"));
}
