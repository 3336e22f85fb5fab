import { Tidegate } from "@tidegate/edge";
import { Tidegate as InMemory } from "@tidegate/edge/memory";

// `next dev` needs no database. Without a proxy of Vercel in front, all requests count as one client.
const limiter = (name: string) => {
  const options = { platform: "vercel", failMode: "open", policy: { name, quotas: ["2 / 1 d"] } } as const;
  return process.env.NODE_ENV === "development" ? new InMemory(options) : Tidegate.fromEnv(options);
};

export const api = limiter("api");
export const render = limiter("render");
