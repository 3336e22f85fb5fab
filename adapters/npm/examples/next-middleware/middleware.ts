import { Tidegate } from "@tidegate/edge";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/next";

const options = { platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } } as const;
const tidegate = process.env.NODE_ENV === "development" ? new InMemory(options) : Tidegate.fromEnv(options);

export const middleware = limit(tidegate);
export const config = { matcher: ["/api/hello", "/page"] };
