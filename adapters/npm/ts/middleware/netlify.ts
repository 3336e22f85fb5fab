import type { Limiter } from "../limiter.js";
import { guard, type GuardOptions, type WaitUntil } from "./guard.js";

/** What a Netlify edge function gets, as far as it is used. */
interface Context {
  next(): Promise<Response>;
  waitUntil?: WaitUntil;
}

/**
 * A Netlify edge function. Which paths it is for, `config` says:
 *
 *     export default limit(tidegate);
 *     export const config = { path: "/api/*" };
 */
export function limit(tidegate: Limiter, options: GuardOptions = {}) {
  return (request: Request, context: Context): Promise<Response> =>
    guard(tidegate, request, () => context.next(), options, { waitUntil: context.waitUntil?.bind(context) });
}
