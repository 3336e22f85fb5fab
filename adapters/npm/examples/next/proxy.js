import { limit } from "@tidegate/edge/next";
import { tidegate } from "../tidegate.mjs";

export const proxy = limit(tidegate("vercel"));
export const config = { matcher: "/api/:path*" };
