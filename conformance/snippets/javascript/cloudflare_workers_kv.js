import { Tidegate } from "@tidegate/edge/cloudflare-kv";
import { env } from "cloudflare:workers";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = new Tidegate({ namespace: env.COUNTS, failMode: "open", policy });
