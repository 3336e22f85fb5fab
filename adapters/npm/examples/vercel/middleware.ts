import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/next";

const tidegate = Tidegate.fromEnv({ platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

export default limit(tidegate);
export const config = { runtime: "nodejs", matcher: "/api/:path*" };
