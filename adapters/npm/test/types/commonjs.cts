// An application in CommonJS. Node.js and TypeScript can `require` ES modules.

import { type CheckOptions, type Policy, Tidegate as OnUpstash, TidegateError, type Verdict } from "@tidegate/edge";
import { type DenoKv, Tidegate as OnDenoKv } from "@tidegate/edge/deno-kv";
import { TidegateStore } from "@tidegate/edge/express-rate-limit";
import { limit as hono } from "@tidegate/edge/hono";
import edge = require("@tidegate/edge/memory");
import { Tidegate as OnBlobs } from "@tidegate/edge/netlify-blobs";
import { Tidegate as OnStore, type VersionedStore } from "@tidegate/edge/store";
import { limit as next } from "@tidegate/edge/next";
import { limit as node, type NodeGuardOptions, type NodeRequest } from "@tidegate/edge/node";
import { limitRoute } from "@tidegate/edge/react-router";
import { Tidegate as OnRedis } from "@tidegate/edge/redis";
import { limit as sveltekit } from "@tidegate/edge/sveltekit";

const policy: Policy = { name: "api", quotas: ["10 / s"] };
const common = { platform: "direct", failMode: "open", policy } as const;
export const tidegate = new edge.Tidegate(common);
// @ts-expect-error
new edge.Tidegate({ platform: "direct" });
// @ts-expect-error
new edge.Tidegat(common);

export const limiters: edge.Limiter[] = [
  tidegate,
  OnUpstash.fromEnv(common),
  new OnRedis({ ...common, client: { sendCommand: async (args: string[]) => args } }),
  new OnBlobs({ ...common, blobs: {} }),
];
export const onStore = (store: VersionedStore): OnStore => new OnStore({ ...common, store });
export const onDenoKv = (kv: DenoKv): OnDenoKv => new OnDenoKv({ ...common, kv });
export const store = new TidegateStore(tidegate);
export const middlewares = [hono(tidegate), next(tidegate), node(tidegate), limitRoute(tidegate), sveltekit(tidegate)];
export const options: NodeGuardOptions<NodeRequest> = { check: ({ ip }) => ({ peer: ip }) };

export class Limited extends edge.Tidegate {}

/** What is required has the same types as what is imported. */
export async function same(request: Request, options: CheckOptions): Promise<Verdict> {
  const imported = await import("@tidegate/edge/memory");
  const limiter: InstanceType<typeof imported.Tidegate> = tidegate;
  const error: unknown = new imported.TidegateError("invalid", "");
  if (error instanceof TidegateError) throw error;
  return limiter.check(request, options);
}
