import type { CheckOptions, Limiter } from "../limiter.js";
import type { Verdict } from "../verdict.js";

/** How a framework's requests are limited. */
export interface GuardOptions {
  /** Chooses the key or the cost of a request. `null` exempts the request from the limit. If it throws, the response is a 400. */
  check?: (request: Request) => CheckOptions | null | undefined | Promise<CheckOptions | null | undefined>;
  /** How much of its cost to refund a request after its response, as `(response) => (response.status === 304 ? 1 : 0)`. */
  refund?: (response: Response) => number;
}

/** Keeps work alive after the response was sent, on platforms that otherwise end it. */
export type WaitUntil = (work: Promise<unknown>) => void;

/** The verdict on a request, after the delay that a leaky bucket asks for. Undefined if the request is exempt. */
export async function judge(tidegate: Limiter, request: Request, options: GuardOptions, peer?: string): Promise<Verdict | undefined> {
  let chosen: CheckOptions | (() => never);
  try {
    const said = await options.check?.(request);
    if (said === null) return undefined;
    chosen = { peer, ...said };
  } catch (thrown) {
    chosen = () => {
      throw thrown;
    };
  }
  const verdict = await tidegate.check(request, chosen);
  if (verdict.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
  return verdict;
}

/**
 * Responds to a request: with a rejection, or with the app's response and the rate limit fields.
 *
 * If the policy has a concurrency limit, the request gives back its slot when the response's body has been sent, has failed or
 * is no longer wanted, and when the app throws.
 */
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
  // This is not awaited. If it fails, `onError` is called, and the client has less left than it should for a while.
  const after = (sent: Promise<void>, cost: number) => {
    const work = sent.then<unknown>(() => (cost > 0 ? tidegate.refund(verdict, { cost }) : tidegate.release(verdict)));
    const quiet = work.catch(() => undefined);
    host.waitUntil?.(quiet);
  };
  let response: Response;
  let cost: number;
  try {
    response = verdict.onto(await app());
    cost = options.refund?.(response) ?? 0;
  } catch (thrown) {
    if (tidegate.holdsSlots) after(Promise.resolve(), 0);
    throw thrown;
  }
  // Nobody reads the body of a response to HEAD.
  if (tidegate.holdsSlots && response.body && request.method !== "HEAD") {
    const { sent, body } = watched(response.body);
    after(sent, cost);
    return new Response(body, response);
  }
  if (tidegate.holdsSlots || cost > 0) after(Promise.resolve(), cost);
  return response;
}

/** The same body, and a promise that it has been sent, has failed, or is no longer wanted. */
function watched(body: ReadableStream<Uint8Array>) {
  const reader = body.getReader();
  let over: () => void;
  const sent = new Promise<void>((resolve) => (over = resolve));
  const same = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { value, done } = await reader.read();
          if (!done) return controller.enqueue(value);
          controller.close();
        } catch (thrown) {
          controller.error(thrown);
        }
        over();
      },
      cancel(reason) {
        over();
        return reader.cancel(reason);
      },
    },
    { highWaterMark: 0 },
  );
  return { sent, body: same };
}
