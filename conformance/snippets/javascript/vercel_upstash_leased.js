import { Tidegate } from "@tidegate/edge";

// In the edge runtime, leases also need waitUntil, of @vercel/functions.
const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = Tidegate.fromEnv({ platform: "vercel", leases: true, failMode: "open", policy });
