import { Tidegate } from "@tidegate/edge/redis";
import { Redis } from "ioredis";

const url = process.env.REDIS_URL ?? "redis://127.0.0.1:6379";
const client = new Redis(url, { enableOfflineQueue: false, autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5000 });

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60000 } }] };
export const tidegate = new Tidegate({ client, platform: "direct", leases: { grace: 2 }, failMode: "open", policy });
