import type { CheckOptions, Limiter } from "../limiter.js";
import type { Verdict } from "../verdict.js";

/** How a framework's requests are limited. */
export interface GuardOptions {
  /** How to decide on a request: whom to count, at what cost. `null` leaves it alone. */
  check?: (request: Request) => CheckOptions | null | undefined;
  /** How much of its cost a request is given back by its response, as `(response) => (response.status === 304 ? 1 : 0)`. */
  refund?: (response: Response) => number;
}

/** Lets work go on after the response was sent, where a platform ends what is not waited for. */
export type WaitUntil = (work: Promise<unknown>) => void;

/** The verdict on a request, after the hold that a leaky bucket asks for; undefined where the request is left alone. */
export async function judge(tidegate: Limiter, request: Request, options: GuardOptions, peer?: string): Promise<Verdict | undefined> {
  const chosen = options.check?.(request);
  if (chosen === null) return undefined;
  const verdict = await tidegate.check(request, peer === undefined ? { ...chosen } : { peer, ...chosen });
  if (verdict.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
  return verdict;
}

/** Answers a request: by a rejection, or by the app with the fields that tell how the client stands. */
export async function guard(
  tidegate: Limiter,
  request: Request,
  app: () => Response | Promise<Response>,
  options: GuardOptions,
  host: { waitUntil?: WaitUntil | undefined; peer?: string | undefined } = {},
): Promise<Response> {
  const verdict = await judge(tidegate, request, options, host.peer);
  if (verdict === undefined) return app();
  if (verdict.response) return verdict.response;
  const response = verdict.onto(await app());
  const cost = options.refund?.(response) ?? 0;
  if (cost > 0) {
    // A lost refund leaves the client with less than it has a right to, for a while; nobody waits for that.
    const refunded = tidegate.refund(verdict, { cost }).catch(() => undefined);
    host.waitUntil?.(refunded);
  }
  return response;
}
