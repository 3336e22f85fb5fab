import { namesOf, only } from "../fields.js";
import type { Limiter } from "../limiter.js";
import { type CheckOptionsOf, type Decider, giveBack, type GuardOptions, judge, type Limiting, limiterOf, refusal } from "./guard.js";
import { addressOf, type NodeRequest, requestOf, routingOf } from "./node_request.js";

export type { NodeRequest } from "./node_request.js";

/** What the middleware needs of Node.js's `ServerResponse`. */
export interface NodeResponse {
  statusCode: number;
  readonly closed: boolean;
  getHeader(name: string): unknown;
  setHeader(name: string, value: string): unknown;
  end(body: Uint8Array): unknown;
  once(event: "close", listener: () => void): unknown;
}

/** How a server's requests are limited. */
export interface NodeGuardOptions<Received extends NodeRequest, By extends Decider = Limiter> extends Omit<GuardOptions<Received, Request, By>, "check" | "refund"> {
  /** Chooses the key or the cost of a request. `null` exempts it from the limit. If it throws, the response is a 400. */
  check?: ((request: Received) => CheckOptionsOf<By> | null | undefined | Promise<CheckOptionsOf<By> | null | undefined>) | undefined;
}

const NODE = namesOf<NodeGuardOptions<NodeRequest>>({ check: true, denied: true, ignoreCase: true });

/**
 * A middleware for Node.js's `(req, res, next)`, of Express, Connect and Polka:
 *
 *     app.use("/api", limit(tidegate));
 *
 * The rules of a gate match the whole path of a request, also behind a mount: those of this snippet have paths such as `/api/login`. They
 * ignore upper and lower case, as the routes of Express, Connect and Polka do; say `ignoreCase: false` for a router that does not.
 * If the application rewrites `req.url` before, the rules of both paths apply. A request whose target is neither a path, nor
 * an absolute URL, nor `*` gets a 400 from a gate.
 *
 * The client's address is `req.ip`, which Express finds by its setting `trust proxy`, or else that of the socket. If the policy has a
 * concurrency limit, the request gives back its slot when the response has been sent, or its connection is closed.
 */
export function limit<Received extends NodeRequest, Sent extends NodeResponse, By extends Decider = Limiter>(
  limiting: Limiting<Received, Request, By>,
  options: NodeGuardOptions<Received, By> = {},
) {
  only(options as unknown, "", NODE);
  return async (req: Received, res: Sent, next: (error?: unknown) => void): Promise<void> => {
    try {
      const request = requestOf(req);
      const tidegate = await limiterOf(limiting, request, req);
      const { check, ...others } = options;
      const verdict = await judge(
        tidegate,
        request,
        { ...(check && { check: () => check(req) }), ignoreCase: others.ignoreCase },
        { context: req, routing: routingOf(req), peer: addressOf(req) },
      );
      if (!verdict) return next();
      const refused = await refusal(tidegate, verdict, request, others);
      if (refused) {
        res.statusCode = refused.status;
        refused.headers.forEach((value, name) => res.setHeader(name, value));
        res.end(new Uint8Array(await refused.arrayBuffer()));
        return undefined;
      }
      // The fields of another limiter may be there already.
      const fields = Object.keys(verdict.headers).flatMap((name) => (res.getHeader(name) === undefined ? [] : [[name, String(res.getHeader(name))] as [string, string]]));
      verdict.onto(new Response(null, { headers: fields })).headers.forEach((value, name) => res.setHeader(name, value));
      if (verdict.holdsSlots) {
        const release = () => void giveBack(tidegate, verdict, 0).catch(() => undefined);
        if (res.closed) release();
        else res.once("close", release);
      }
    } catch (thrown) {
      return next(thrown);
    }
    return next();
  };
}
