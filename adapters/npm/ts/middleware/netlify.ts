import type { Limiter } from "../limiter.js";
import { checkGuard, type Decider, guard, type GuardOptions, type Limiting, type WaitUntil } from "./guard.js";

/** The part of a Netlify edge function's context that is used. */
export interface NetlifyContext {
  next(): Promise<Response>;
  waitUntil?: WaitUntil | undefined;
}

/**
 * A Netlify edge function for the paths that `config` names:
 *
 *     export default limit(tidegate);
 *     export const config = { path: "/api/*" };
 */
export function limit<Context extends NetlifyContext, By extends Decider = Limiter>(
  tidegate: Limiting<Context, Request, By>,
  options: GuardOptions<Context, Request, By> = {},
) {
  checkGuard(tidegate, options);
  return (request: Request, context: Context): Promise<Response> =>
    guard(tidegate, request, () => context.next(), options, { context, waitUntil: context.waitUntil?.bind(context) });
}
