import { defineMiddleware } from "astro:middleware";
import { gate } from "../gate";

export const onRequest = defineMiddleware(async (context, next) => {
  const verdict = await gate.check(context.request, { target: context.request.url, framework: "astro", peer: "192.0.2.1" });
  return verdict.response ?? verdict.onto(await next());
});
