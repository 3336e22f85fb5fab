import { Tidegate } from "@tidegate/edge/memory";
import { Elysia } from "elysia";

const tidegate = new Tidegate({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

const api = new Elysia({ prefix: "/api" })
  .onBeforeHandle(async ({ request, server, set }) => {
    const verdict = await tidegate.check(request, { peer: server?.requestIP(request)?.address });
    Object.assign(set.headers, verdict.headers);
    return verdict.response;
  })
  .get("/hello", () => "hello");

new Elysia()
  .use(api)
  .get("/", () => "home")
  .listen({ port: Number(process.env.PORT), hostname: process.env.HOST });
