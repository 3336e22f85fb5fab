import { Tidegate } from "@tidegate/edge";
import { limit } from "@tidegate/edge/netlify";
import type { Config } from "@netlify/edge-functions";

const tidegate = Tidegate.fromEnv({ platform: "netlify", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } });

export default limit(tidegate);
export const config: Config = { path: "/api/*" };
