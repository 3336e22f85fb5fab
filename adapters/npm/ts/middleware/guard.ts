import type { BaseCheckOptions, BaseLimiter } from "../base_limiter.js";
import { invalid } from "../error.js";
import { namesOf, only } from "../fields.js";
import type { BaseGate, GateCheckOptions } from "../gate/gate.js";
import type { CheckOptions, Limiter } from "../limiter.js";
import { TELL } from "../log.js";
import type { Settling } from "../settlement.js";
import type { Verdict } from "../verdict.js";

/** What decides on requests. */
export type Decider = BaseLimiter | BaseGate;

/** The options of a check by a limiter or a gate. */
export type CheckOptionsOf<By extends Decider> = By extends BaseGate ? GateCheckOptions : By extends Limiter ? CheckOptions : BaseCheckOptions;

/** How a framework's requests are limited, by a limiter or a gate. */
export interface GuardOptions<Context = unknown, Received extends Request = Request, By extends Decider = Limiter> {
  /**
   * Chooses the key or the cost of a request. `null` exempts the request from the limit. If it throws, the response is a 400.
   * `context` is what the framework passes to its own middleware.
   */
  check?: ((request: Received, context: Context) => CheckOptionsOf<By> | null | undefined | Promise<CheckOptionsOf<By> | null | undefined>) | undefined;
  /**
   * Makes the response to a request that a limit denied. The rate limit fields are added to it. After an error, such as a store
   * that is down, the response remains the verdict's own, and also if this throws an error, which is then told to `onError`.
   */
  denied?: ((verdict: Verdict, request: Received) => Response | Promise<Response>) | undefined;
  /**
   * Whether the app's routes ignore upper and lower case, so that a gate's rules do, too. Default: as the framework does by default. It
   * has no effect on a limiter.
   */
  ignoreCase?: boolean | undefined;
  /** How much of its cost to refund a request after its response, as `(response) => (response.status === 304 ? 1 : 0)`. */
  refund?: ((response: Response) => number) | undefined;
}

const GUARD = namesOf<GuardOptions>({ check: true, denied: true, ignoreCase: true, refund: true });

/** The limiter or the gate of all requests, or a function that chooses it for each, for example by the client's plan. */
export type Limiting<Context, Received extends Request = Request, By extends Decider = Limiter> =
  | By
  | ((request: Received, context: Context) => By | Promise<By>);

/** Throws what is wrong with the options of a guard. `more` has the names of those that a host adds. */
export function checkGuard<Context, Received extends Request, By extends Decider>(
  limiting: Limiting<Context, Received, By>,
  options: GuardOptions<Context, Received, By>,
  more: readonly string[] = [],
): void {
  only(options as unknown, "", [...GUARD, ...more]);
  // One that is chosen for each request is not known yet.
  if (typeof limiting !== "function") canRefund(limiting, options);
}

function canRefund(tidegate: Decider, { refund }: { refund?: unknown }): void {
  if (refund && !givesBack(tidegate)) throw invalid("refund", "a RateLimiter gives nothing back; write Tidegate in place of it, or leave this out");
}

/** The limiter of a request. */
export async function limiterOf<Context, Received extends Request, By extends Decider>(
  limiting: Limiting<Context, Received, By>,
  request: Received,
  context: Context,
): Promise<By> {
  return typeof limiting === "function" ? limiting(request, context) : limiting;
}

/** What a middleware knows of how its host routes a request, for the rules of a gate. */
export type Routing = Pick<GateCheckOptions, "target" | "method" | "framework">;

/** Keeps work alive after the response was sent, on platforms that otherwise end it. */
export type WaitUntil = (work: Promise<unknown>) => void;

/** The verdict on a request, after the delay that a leaky bucket asks for. Undefined if the request is exempt. */
export async function judge<Context, Received extends Request, By extends Decider>(
  tidegate: By,
  request: Received,
  options: Pick<GuardOptions<Context, Received, By>, "check" | "refund" | "ignoreCase">,
  { context, routing, peer }: { context: Context; routing?: Routing | undefined; peer?: string | null | undefined },
): Promise<Verdict | undefined> {
  canRefund(tidegate, options);
  let chosen: object | (() => never);
  try {
    const said = await options.check?.(request, context);
    if (said === null) return undefined;
    const ofGate = isGate(tidegate) ? { ...routing, ignoreCase: options.ignoreCase, ...(options.refund && { token: crypto.randomUUID() }) } : {};
    // Null says that the middleware finds no address. The limiter decides whether one is needed.
    chosen = { ...ofGate, ...said, peer: said?.peer ?? (peer as string | undefined) };
  } catch (thrown) {
    chosen = () => {
      throw thrown;
    };
  }
  const verdict = await tidegate.check(request, chosen);
  if (verdict.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, verdict.delayMs));
  return verdict;
}

function isGate(tidegate: Decider): tidegate is BaseGate {
  return "reload" in tidegate;
}

function givesBack(tidegate: Decider): tidegate is Decider & Settling {
  return "refund" in tidegate;
}

/** Gives back the slots of a request that has ended, and a part of its cost. */
export async function giveBack(tidegate: Decider, verdict: Verdict, cost: number): Promise<unknown> {
  // A `RateLimiter` holds no slots.
  if (!givesBack(tidegate)) return undefined;
  return cost > 0 ? tidegate.refund(verdict, { cost }) : tidegate.release(verdict);
}

/** The response to a request that may not go on. Undefined if it may. */
export async function refusal<Received extends Request, By extends Decider>(
  tidegate: By,
  verdict: Verdict,
  request: Received,
  { denied }: Pick<GuardOptions<never, Received, By>, "denied">,
): Promise<Response | undefined> {
  const { response } = verdict;
  if (!response || !denied || !verdict.limited) return response;
  try {
    return verdict.onto(await denied(verdict, request));
  } catch (thrown) {
    if (thrown instanceof Response) return verdict.onto(thrown);
    // Frameworks throw redirects, which are no errors, and exceptions that are responses.
    if (!(thrown instanceof Error) || isException(thrown)) throw thrown;
    tidegate[TELL](invalid("denied", "threw; the response is the verdict's own", { cause: thrown }));
    return response;
  }
}

/** Whether it is an exception of Hono, of which its error handler makes a response. */
export function isException(thrown: unknown): boolean {
  return typeof (thrown as { getResponse?: unknown }).getResponse === "function";
}

/**
 * Responds to a request: with a rejection, or with the app's response and the rate limit fields.
 *
 * If the policy has a concurrency limit, the request gives back its slot when the response's body has been sent, has failed or
 * is no longer wanted, and when the app throws.
 */
export async function guard<Context, By extends Decider>(
  limiting: Limiting<Context, Request, By>,
  request: Request,
  app: () => Response | Promise<Response>,
  options: GuardOptions<Context, Request, By>,
  host: { context: Context; routing?: Routing; waitUntil?: WaitUntil | undefined; peer?: string | undefined },
): Promise<Response> {
  const tidegate = await limiterOf(limiting, request, host.context);
  const verdict = await judge(tidegate, request, options, { ...host, peer: host.peer ?? null });
  if (verdict === undefined) return app();
  const refused = await refusal(tidegate, verdict, request, options);
  if (refused) return refused;
  const holds = verdict.holdsSlots;
  // This is not awaited. If it fails, `onError` is called, and the client has less left than it should for a while.
  const after = (sent: Promise<void>, cost: number) => {
    const work = sent.then<unknown>(() => giveBack(tidegate, verdict, cost));
    const quiet = work.catch(() => undefined);
    host.waitUntil?.(quiet);
  };
  let response: Response;
  let cost: number;
  try {
    response = verdict.onto(await app());
    cost = options.refund?.(response) ?? 0;
  } catch (thrown) {
    if (holds) after(Promise.resolve(), 0);
    throw thrown;
  }
  // Nobody reads the body of a response to HEAD.
  if ((holds || cost > 0) && response.body && request.method !== "HEAD") {
    const { sent, body } = watched(response.body);
    after(sent, cost);
    return new Response(body, response);
  }
  if (holds || cost > 0) after(Promise.resolve(), cost);
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
