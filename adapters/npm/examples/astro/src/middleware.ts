import { Tidegate } from "@tidegate/edge";
import { defineMiddleware } from "astro:middleware";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

export const onRequest = defineMiddleware(async (context, next) => {
  if (context.url.pathname === "/" || context.isPrerendered) return next();
  const verdict = await tidegate.check(context.request, { peer: context.clientAddress });
  return verdict.response ?? verdict.onto(await next());
});
