import { Tidegate } from "@tidegate/edge";
import { env, waitUntil } from "cloudflare:workers";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = Tidegate.fromEnv({ platform: "cloudflare", leases: { grace: 2 }, waitUntil, failMode: "open", policy }, env);
