import { Tidegate } from "@tidegate/edge";
import { limitRoute } from "@tidegate/edge/react-router";

const tidegate = Tidegate.fromEnv({ platform: "direct", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

export const limited = limitRoute(tidegate, {
  // The proxy in front of this server overwrites x-real-ip.
  check: (request) => (new URL(request.url).pathname === "/" ? null : { peer: request.headers.get("x-real-ip") ?? undefined }),
});
