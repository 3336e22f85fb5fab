// An application in JavaScript that is type-checked.

import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/hono";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { Hono } from "hono";

const policy = { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 } }, "10 / 10 s"] };
const tidegate = Tidegate.fromEnv({ platform: "cloudflare", failMode: "open", policy });
// @ts-expect-error
new InMemory({ platform: "direct", failMode: "open", policy: { name: "api", quotas: [{ fixedWindow: { limit: 10 } }] } });

export const app = new Hono();
app.use(limit(tidegate, { check: (request, context) => ({ key: context.req.header("x-user") ?? request.url }) }));

/** @param {Request} request */
export async function handler(request) {
  const verdict = await tidegate.check(request);
  // @ts-expect-error
  verdict.denied;
  return verdict.response ?? verdict.onto(new Response("hello"));
}
