import type { Context, Env, MiddlewareHandler } from "hono";
import type { Limiter } from "../limiter.js";
import type { Verdict } from "../verdict.js";
import { checkGuard, type Decider, guard, type GuardOptions, isException, type Limiting, type Routing, type WaitUntil } from "./guard.js";

export type { GuardOptions };

/**
 * A Hono middleware:
 *
 *     app.use("/api/*", limit(tidegate));
 *
 * `limit<Env>(…)` gives the `context` of `check` the types of the application's bindings and variables.
 *
 * On Node.js and Bun, the client's address comes from the socket:
 *
 *     import { getConnInfo } from "@hono/node-server/conninfo";
 *     app.use("/api/*", limit(tidegate, { peer: (context) => getConnInfo(context).remote.address }));
 */
export function limit<E extends Env = any, By extends Decider = Limiter>(
  tidegate: Limiting<Context<E>, Request, By>,
  options: GuardOptions<Context<E>, Request, By> & { peer?: ((context: Context<E>) => string | undefined) | undefined } = {},
): MiddlewareHandler<E> {
  checkGuard(tidegate, options, ["peer"]);
  return async (context, next) => {
    let passed = false;
    const app = async () => {
      passed = true;
      await next();
      return context.res;
    };
    const { denied } = options;
    const made = denied && { denied: (verdict: Verdict, request: Request) => told(context, verdict, () => denied(verdict, request)) };
    const response = await guard(tidegate, context.req.raw, app, { ...options, ...made }, {
      context,
      routing: routingOf(context),
      waitUntil: waitUntil(context),
      peer: options.peer?.(context),
    });
    if (!passed) return response;
    context.res = response;
    return undefined;
  };
}

/** Has the application's error handler add the rate limit fields to the response to an exception that `denied` throws. */
async function told(context: Context, { headers }: { readonly headers: Readonly<Record<string, string>> }, denied: () => Response | Promise<Response>): Promise<Response> {
  try {
    return await denied();
  } catch (thrown) {
    if (isException(thrown)) for (const name in headers) if (name !== "content-type") context.header(name, headers[name]);
    throw thrown;
  }
}

/** `app.mount` gives the other app a path without its beginning. On Node.js, the server's own request still has it. */
function routingOf({ env, req }: Context): Routing {
  const { incoming } = (env ?? {}) as { incoming?: { url?: string; originalUrl?: string } };
  const received = incoming?.originalUrl ?? incoming?.url;
  return { framework: "hono", target: received === undefined ? req.raw.url : [req.raw.url, received] };
}

/** Hono throws if the host has no execution context. */
function waitUntil(context: Context): WaitUntil | undefined {
  try {
    const host = context.executionCtx;
    return host.waitUntil.bind(host);
  } catch {
    return undefined;
  }
}
