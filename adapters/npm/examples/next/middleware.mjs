import { limit } from "@tidegate/edge/next";
import { tidegate } from "../tidegate.mjs";

export const middleware = limit(tidegate("vercel"));
export const config = { matcher: "/api/:path*" };
