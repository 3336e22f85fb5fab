import { Tidegate } from "@tidegate/edge";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

Bun.serve({
  hostname: process.env.HOST,
  port: Number(process.env.PORT),
  async fetch(request, server) {
    if (new URL(request.url).pathname === "/") return new Response("home");
    const verdict = await tidegate.check(request, { peer: server.requestIP(request)?.address });
    return verdict.response ?? verdict.onto(new Response("hello"));
  },
});
