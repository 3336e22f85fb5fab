// How each peer is used, as its own documentation shows. Each function connects to its store, and returns a function that makes
// a limiter of a quota. The limiter takes a key and a cost, and returns:
//
// - `allowed`
// - `retryAfterMs`: for a denial, how long the peer tells the client to wait

import { createHitLimit } from "@joint-ops/hitlimit/node";
import { Ratelimit } from "@upstash/ratelimit";
import { Redis as Upstash } from "@upstash/redis";
import express from "express";
import { rateLimit } from "express-rate-limit";
import { Hono } from "hono";
import { rateLimiter } from "hono-rate-limiter";
import { RedisStore } from "rate-limit-redis";
import { RateLimiterMemory, RateLimiterPostgres, RateLimiterRedis } from "rate-limiter-flexible";

export const limiters = {
  "@upstash/ratelimit": ({ url, token }) => {
    const redis = new Upstash({ url, token, enableTelemetry: false });
    return (quota, prefix) => {
      const ratelimit = new Ratelimit({ redis, prefix, limiter: upstash(quota) });
      return async (key, cost) => {
        const { success, reset } = await ratelimit.limit(key, { rate: cost });
        return { allowed: success, retryAfterMs: reset - Date.now() };
      };
    };
  },

  "rate-limiter-flexible": ({ redis, postgres }) => async (quota, keyPrefix) => {
    const options = { points: quota.limit, duration: quota.window_ms / 1_000, keyPrefix };
    const onPostgres = () =>
      new Promise((resolve, reject) => {
        const limiter = new RateLimiterPostgres({ storeClient: postgres, tableName: "limits", ...options }, (error) => (error ? reject(error) : resolve(limiter)));
      });
    const limiter = postgres ? await onPostgres() : redis ? new RateLimiterRedis({ storeClient: redis, ...options }) : new RateLimiterMemory(options);
    return async (key, cost) => {
      try {
        await limiter.consume(key, cost);
        return { allowed: true };
      } catch (denied) {
        if (denied instanceof Error) throw denied;
        return { allowed: false, retryAfterMs: denied.msBeforeNext };
      }
    };
  },

  "express-rate-limit": ({ redis }) => async (quota, prefix) => {
    const store = redis && new RedisStore({ prefix, sendCommand: (...command) => redis.call(...command) });
    const app = express();
    const keyGenerator = (request) => keyOf(request.get("x-key"));
    app.use(rateLimit({ windowMs: quota.window_ms, limit: quota.limit, keyGenerator, ...(store && { store }) }));
    app.get("/", (_, response) => response.send("hello"));
    const server = app.listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const url = `http://127.0.0.1:${server.address().port}`;
    return async (key) => answered(await fetch(url, { headers: { "x-key": encodeURIComponent(key) } }));
  },

  "@joint-ops/hitlimit": () => (quota) => {
    const limiter = createHitLimit({ limit: quota.limit, window: quota.window_ms, key: (request) => request.key });
    return async (key) => {
      const { allowed, info } = await limiter.check({ key });
      return { allowed, retryAfterMs: info.resetIn * 1_000 };
    };
  },

  "hono-rate-limiter": () => (quota) => {
    const app = new Hono();
    const keyGenerator = (context) => keyOf(context.req.header("x-key"));
    app.use(rateLimiter({ windowMs: quota.window_ms, limit: quota.limit, keyGenerator }));
    app.get("/", (context) => context.text("hello"));
    return async (key) => answered(await app.request("/", { headers: { "x-key": encodeURIComponent(key) } }));
  },
};

function upstash(quota) {
  switch (quota.algorithm) {
    case "fixed_window":
      return Ratelimit.fixedWindow(quota.limit, `${quota.window_ms} ms`);
    case "sliding_window":
      return Ratelimit.slidingWindow(quota.limit, `${quota.window_ms} ms`);
    case "token_bucket":
      return Ratelimit.tokenBucket(quota.refill, `${quota.per_ms} ms`, quota.capacity);
  }
}

/** The key in a header. A key may contain what a header may not. */
const keyOf = decodeURIComponent;

/** What a response of a middleware says. */
async function answered(response) {
  await response.text();
  if (![200, 429].includes(response.status)) throw new Error(`status ${response.status}`);
  const seconds = response.headers.get("retry-after");
  return { allowed: response.status === 200, retryAfterMs: seconds === null ? undefined : Number(seconds) * 1_000 };
}
