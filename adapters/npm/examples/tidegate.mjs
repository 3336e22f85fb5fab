// The limiter that every example uses.

import { Tidegate } from "@tidegate/edge";

export const tidegate = (platform) =>
  new Tidegate({
    url: process.env.UPSTASH_REDIS_REST_URL,
    token: process.env.UPSTASH_REDIS_REST_TOKEN,
    platform,
    failMode: "open",
    policy: { name: "api", quotas: [{ fixedWindow: { limit: 2, windowMs: 86_400_000 } }] },
  });
