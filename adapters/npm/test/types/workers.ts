// The stores of Cloudflare in a Worker.

import { type Leases, type ObjectOptions, Tidegate as Objects, TidegateObject } from "@tidegate/edge/cloudflare";
import { type KvOptions, Tidegate as Kv } from "@tidegate/edge/cloudflare-kv";
import { RateLimiter, type RateLimitOptions, Tidegate as RateLimited } from "@tidegate/edge/cloudflare-ratelimit";
import { clientAddress, fixedWindow, tokenBucket } from "@tidegate/edge/parts";

export { TidegateObject };

interface Env {
  TIDEGATE: DurableObjectNamespace<TidegateObject>;
  COUNTS: KVNamespace;
  LIMITER: RateLimit;
}

// With `exactOptionalPropertyTypes`, each optional field takes `undefined`, too.
type Exact<T> = T extends object ? { [Name in keyof T]-?: {} extends Pick<T, Name> ? (undefined extends Required<T>[Name] ? never : Name) : never }[keyof T] : never;
type None<T extends never> = T;
export type EachTakesUndefined = None<Exact<ObjectOptions | Leases | KvOptions | RateLimitOptions>>;

const policy = { name: "api", quotas: ["10 / 10 s"] };

export default {
  async fetch(request, env, context) {
    const objects = new Objects({ namespace: env.TIDEGATE, failMode: "open", policy, leases: { slice: 5 }, locationHint: "weur" });
    const kv = new Kv({ namespace: env.COUNTS, failMode: "open", policy, waitUntil: (work) => context.waitUntil(work) });
    const fixed = { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 60_000 } }] };
    const limited = new RateLimited({ binding: env.LIMITER, failMode: "closed", policy: fixed });
    const lean = new RateLimiter({ binding: env.LIMITER, failMode: "open", policy: { name: "api", quotas: [fixedWindow(10, "1 min")] }, sender: clientAddress("cloudflare") });
    // @ts-expect-error: the binding counts fixed windows.
    new RateLimiter({ binding: env.LIMITER, failMode: "open", policy: { name: "api", quotas: [tokenBucket(10, 1, "1 min")] } });
    // @ts-expect-error
    new Objects({ namespace: env.COUNTS, failMode: "open", policy });
    // @ts-expect-error
    new Kv({ namespace: env.LIMITER, failMode: "open", policy });
    for (const tidegate of [limited, lean, kv, objects]) {
      const { response } = await tidegate.check(request);
      if (response) return response;
    }
    return new Response("hello");
  },
} satisfies ExportedHandler<Env>;
