import { NextResponse } from "next/server.js";
import type { NextRequest } from "next/server.js";
import type { Limiter } from "../limiter.js";
import { type GuardOptions, judge } from "./guard.js";

/**
 * A Next.js middleware. Which paths it is for, `config.matcher` says:
 *
 *     export const middleware = limit(tidegate);
 *     export const config = { matcher: "/api/:path*" };
 */
export function limit(tidegate: Limiter, options: Omit<GuardOptions, "refund"> = {}) {
  return async (request: NextRequest): Promise<Response> => {
    const verdict = await judge(tidegate, request, options);
    return verdict?.response ?? verdict?.onto(NextResponse.next()) ?? NextResponse.next();
  };
}
