import { Tidegate } from "@tidegate/edge";

// What a grace admits is told after the response. So pass waitUntil, of @vercel/functions.
const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = Tidegate.fromEnv({ platform: "vercel", leases: { grace: 2 }, failMode: "open", policy });
