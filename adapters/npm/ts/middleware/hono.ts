import type { Context, Env, MiddlewareHandler } from "hono";
import type { Limiter } from "../limiter.js";
import { only } from "../fields.js";
import { type Decider, GUARD, guard, type GuardOptions, type Limiting, type WaitUntil } from "./guard.js";

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
  only(options as unknown, "", [...GUARD, "peer"]);
  return async (context, next) => {
    let passed = false;
    const app = async () => {
      passed = true;
      await next();
      return context.res;
    };
    const response = await guard(tidegate, context.req.raw, app, options, { context, waitUntil: waitUntil(context), peer: options.peer?.(context) });
    if (!passed) return response;
    context.res = response;
    return undefined;
  };
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
