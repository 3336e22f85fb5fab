import { Tidegate } from "@tidegate/edge/cloudflare";
import { env } from "cloudflare:workers";
export { TidegateObject } from "@tidegate/edge/cloudflare";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = new Tidegate({ namespace: env.TIDEGATE, leases: { grace: 2 }, failMode: "open", policy });
