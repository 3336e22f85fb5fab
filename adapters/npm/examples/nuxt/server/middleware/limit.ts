import { Tidegate } from "@tidegate/edge";

const platform = import.meta.preset === "cloudflare-module" ? "cloudflare" : "direct";
const tidegate = Tidegate.fromEnv({ platform, failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

export default defineEventHandler(async (event) => {
  if (event.path === "/") return;
  const request = new Request(getRequestURL(event), { headers: event.headers });
  const verdict = await tidegate.check(request, { peer: event.node.req.socket?.remoteAddress });
  setResponseHeaders(event, verdict.headers);
  return verdict.response;
});
