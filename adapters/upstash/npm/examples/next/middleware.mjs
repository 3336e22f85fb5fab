import { limit } from "@tollgate-rs/edge/next";
import { tollgate } from "../tollgate.mjs";

export const middleware = limit(tollgate("vercel"));
export const config = { matcher: "/api/:path*" };
