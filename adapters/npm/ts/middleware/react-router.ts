import type { Limiter } from "../limiter.js";
import { checkGuard, type Decider, guard, type GuardOptions, type Limiting, type WaitUntil } from "./guard.js";

const ROUTING = { framework: "react-router" } as const;

/**
 * Limits the request handler of React Router or Remix:
 *
 *     export default limit(tidegate, createRequestHandler(build));
 *
 * The rules of a gate match the path of a route also in requests for its data (`/page.data`), and ignore case, as routes do.
 */
export function limit<Rest extends unknown[], By extends Decider = Limiter>(
  tidegate: Limiting<Rest, Request, By>,
  handler: (request: Request, ...rest: Rest) => Response | Promise<Response>,
  options: GuardOptions<Rest, Request, By> & { waitUntil?: WaitUntil | undefined } = {},
) {
  checkGuard(tidegate, options, ["waitUntil"]);
  const limited = (request: Request, ...rest: Rest): Promise<Response> =>
    guard(tidegate, request, () => handler(request, ...rest), options, { context: rest, routing: ROUTING, waitUntil: options.waitUntil });
  // Some servers pass the client's address only to a handler that has a parameter for it.
  return Object.defineProperty(limited, "length", { value: handler.length });
}

/** The part of the arguments of React Router's middlewares that is used. */
export interface MiddlewareArguments {
  request: Request;
}

/**
 * A middleware for a route and those below it, in React Router 7 with `v8_middleware` or newer. In `app/root.tsx`, it limits all:
 *
 *     export const middleware = [limitRoute(tidegate)];
 */
export function limitRoute<Args extends MiddlewareArguments, By extends Decider = Limiter>(
  tidegate: Limiting<Args, Request, By>,
  options: GuardOptions<Args, Request, By> & { waitUntil?: WaitUntil | undefined } = {},
) {
  checkGuard(tidegate, options, ["waitUntil"]);
  return (args: Args, next: () => Promise<Response>): Promise<Response> =>
    guard(tidegate, args.request, next, options, { context: args, routing: ROUTING, waitUntil: options.waitUntil });
}
