import { invalid } from "../error.js";
import { namesOf, only } from "../fields.js";
import type { Limiter } from "../limiter.js";
import { type Decider, type GuardOptions, judge, type Limiting, limiterOf, refusal, type Routing } from "./guard.js";

/**
 * A Next.js proxy for the paths that `config.matcher` names, in `proxy.ts`:
 *
 *     export const proxy = limit(tidegate);
 *     export const config = { matcher: "/api/:path*" };
 *
 * Before version 16, Next.js calls the file `middleware.ts` and the export `middleware`. Vercel's Routing Middleware for other
 * frameworks is the default export of `middleware.ts`.
 *
 * `limit<NextRequest, NextFetchEvent>(…)` gives `check` and `denied` the types of Next.js.
 *
 * The rules of a gate match the path of a page also in requests for its data, with and without the base path and the locale. A Server
 * Action runs on the path of any page: call `check` in the action itself.
 *
 * Next.js does not tell a proxy when the response has ended. So a policy with a concurrency limit throws here. Call `check` and
 * `release` in the route handler instead.
 */
export function limit<Received extends Request = Request, Event = unknown, By extends Decider = Limiter>(
  tidegate: Limiting<Event | undefined, Received, By>,
  options: Omit<GuardOptions<Event | undefined, Received, By>, "refund"> = {},
) {
  only(options as unknown, "", PROXY);
  if (typeof tidegate !== "function") releasable(tidegate);
  return async (request: Received, event?: Event): Promise<Response> => {
    const chosen = releasable(await limiterOf(tidegate, request, event));
    const verdict = await judge(chosen, request, options, { context: event, routing: routingOf(request) });
    if (!verdict) return next();
    return (await refusal(chosen, verdict, request, options)) ?? verdict.onto(next());
  };
}

const PROXY = namesOf<Omit<GuardOptions, "refund">>({ check: true, denied: true, ignoreCase: true });

function releasable<By extends Decider>(tidegate: By): By {
  if (!tidegate.holdsSlots) return tidegate;
  throw invalid("policy", "a proxy cannot release the slots of a concurrency limit; call check and release in the route handler");
}

/** Next.js tells a page's path without the base path and the locale. */
function routingOf({ url, nextUrl }: Request & { nextUrl?: { pathname?: unknown } }): Routing {
  const page = nextUrl?.pathname;
  return { framework: "next", target: typeof page === "string" ? [url, page] : url };
}

/** What `NextResponse.next()` returns: the request goes on to the app. */
function next(): Response {
  return new Response(null, { headers: { "x-middleware-next": "1" } });
}
