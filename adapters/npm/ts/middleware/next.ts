import { NextResponse } from "next/server.js";
import type { NextRequest } from "next/server.js";
import type { Limiter } from "../limiter.js";
import { type GuardOptions, judge } from "./guard.js";

/**
 * A Next.js proxy for the paths that `config.matcher` names, in `proxy.ts`:
 *
 *     export const proxy = limit(tidegate);
 *     export const config = { matcher: "/api/:path*" };
 *
 * Before version 16, Next.js calls the file `middleware.ts` and the export `middleware`.
 */
export function limit(tidegate: Limiter, options: Omit<GuardOptions, "refund"> = {}) {
  return async (request: NextRequest): Promise<Response> => {
    const verdict = await judge(tidegate, request, options);
    return verdict?.response ?? verdict?.onto(NextResponse.next()) ?? NextResponse.next();
  };
}
