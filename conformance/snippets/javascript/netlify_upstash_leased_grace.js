import { Tidegate } from "@tidegate/edge";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = Tidegate.fromEnv({ platform: "netlify", leases: { grace: 2 }, failMode: "open", policy });
