import { Tidegate } from "@tidegate/edge";
import { Tidegate as InMemory } from "@tidegate/edge/memory";
import { limit } from "@tidegate/edge/next";
import type { NextFetchEvent, NextRequest } from "next/server";

const options = { platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["2 / 1 d"] } } as const;
const tidegate = process.env.NODE_ENV === "development" ? new InMemory(options) : Tidegate.fromEnv(options);

export const middleware = limit<NextRequest, NextFetchEvent>(tidegate, {
  check: ({ nextUrl }) => (nextUrl.pathname === "/" ? null : {}),
});
export const config = { matcher: ["/", "/api/hello", "/page"] };
