import type { Limiter } from "../limiter.js";
import { guard, type GuardOptions, type WaitUntil } from "./guard.js";

/**
 * Limits the request handler of React Router or Remix:
 *
 *     export default limit(tidegate, createRequestHandler(build));
 */
export function limit<Rest extends unknown[]>(
  tidegate: Limiter,
  handler: (request: Request, ...rest: Rest) => Response | Promise<Response>,
  options: GuardOptions<Rest> & { waitUntil?: WaitUntil } = {},
) {
  return (request: Request, ...rest: Rest): Promise<Response> =>
    guard(tidegate, request, () => handler(request, ...rest), options, { context: rest, waitUntil: options.waitUntil });
}
