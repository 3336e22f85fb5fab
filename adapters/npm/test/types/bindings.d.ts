// The bindings of a Worker, and its runtime.

declare module "cloudflare:workers" {
  export const env: {
    TIDEGATE: { getByName(name: string): object };
    COUNTS: import("@tidegate/edge/cloudflare-kv").KvOptions["namespace"];
    LIMITER: { limit(options: { key: string }): Promise<{ success: boolean }> };
    UPSTASH_REDIS_REST_URL: string;
    UPSTASH_REDIS_REST_TOKEN: string;
  };
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    constructor(ctx: object, env: object);
    alarm?(): Promise<void>;
  }
}
