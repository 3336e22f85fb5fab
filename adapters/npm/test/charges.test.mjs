// What core/docs/costs.md says about denied requests, here and in @upstash/ratelimit.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Ratelimit } from "@upstash/ratelimit";
import { Redis } from "@upstash/redis";
import { Tidegate } from "@tidegate/edge";
import { upstash } from "./servers.mjs";

test("a denied request costs nothing, and in @upstash/ratelimit it costs the rest", async () => {
  const server = await upstash();
  try {
    const { url, token } = server;
    const policy = { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 86_400_000 } }] };
    const own = new Tidegate({ url, token, platform: "vercel", failMode: "closed", policy });
    const peer = new Ratelimit({ redis: new Redis({ url, token }), limiter: Ratelimit.fixedWindow(10, "1 d"), ephemeralCache: false, analytics: false });
    const request = new Request("https://example.com/");
    const [ours, theirs] = [[], []];
    for (const cost of [8, 5, 1]) {
      ours.push((await own.check(request, { key: "side-by-side", cost })).allowed);
      theirs.push((await peer.limit("side-by-side", { rate: cost })).success);
    }
    assert.deepEqual([ours, theirs], [[true, false, true], [true, false, false]]);
  } finally {
    await server.stop();
  }
});
