import { Tidegate } from "@tidegate/edge";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

Deno.serve({ hostname: Deno.env.get("HOST"), port: Number(Deno.env.get("PORT")) }, async (request, { remoteAddr }) => {
  if (new URL(request.url).pathname === "/") return new Response("home");
  const verdict = await tidegate.check(request, { peer: remoteAddr.hostname });
  return verdict.response ?? verdict.onto(new Response("hello"));
});
