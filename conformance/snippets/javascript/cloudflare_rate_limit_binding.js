import { Tidegate } from "@tidegate/edge/cloudflare-ratelimit";
import { env } from "cloudflare:workers";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = new Tidegate({ binding: env.LIMITER, failMode: "open", policy });
