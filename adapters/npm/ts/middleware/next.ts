import { NextResponse } from "next/server.js";
import type { NextFetchEvent, NextRequest } from "next/server.js";
import { invalid } from "../error.js";
import type { Limiter } from "../limiter.js";
import { type GuardOptions, judge, refusal } from "./guard.js";

/**
 * A Next.js proxy for the paths that `config.matcher` names, in `proxy.ts`:
 *
 *     export const proxy = limit(tidegate);
 *     export const config = { matcher: "/api/:path*" };
 *
 * Before version 16, Next.js calls the file `middleware.ts` and the export `middleware`.
 *
 * Next.js does not tell a proxy when the response has ended. So a policy with a concurrency limit throws here. Call `check` and
 * `release` in the route handler instead.
 */
export function limit(tidegate: Limiter, options: Omit<GuardOptions<NextFetchEvent | undefined, NextRequest>, "refund"> = {}) {
  if (tidegate.holdsSlots) {
    throw invalid("policy", "a proxy cannot release the slots of a concurrency limit; call check and release in the route handler");
  }
  return async (request: NextRequest, event?: NextFetchEvent): Promise<Response> => {
    const verdict = await judge(tidegate, request, options, event);
    if (!verdict) return NextResponse.next();
    return (await refusal(verdict, request, options)) ?? verdict.onto(NextResponse.next());
  };
}
