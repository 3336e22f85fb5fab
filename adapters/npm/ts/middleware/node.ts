import { namesOf, only } from "../fields.js";
import type { Limiter } from "../limiter.js";
import { type CheckOptionsOf, type Decider, giveBack, type GuardOptions, judge, type Limiting, limiterOf, refusal, type Routing } from "./guard.js";

/** What the middleware needs of Node.js's `IncomingMessage`, and of what Express, Connect and Polka add to it. */
export interface NodeRequest {
  method?: string | undefined;
  url?: string | undefined;
  /** The request target before mounts and rewriting. */
  originalUrl?: string | undefined;
  /** Where the router is mounted, in Express. */
  baseUrl?: string | undefined;
  headers: Readonly<Record<string, string | string[] | undefined>>;
  socket?: { remoteAddress?: string | undefined } | undefined;
  ip?: string | undefined;
}

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

/** Methods that no `Request` has. */
const NO_METHODS = ["CONNECT", "TRACE", "TRACK"];

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
        { context: req, routing: routingOf(req), peer: req.ip ?? req.socket?.remoteAddress ?? null },
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

/** The scheme and the host of a request target that is a URL. */
const ORIGIN = /^(?:[^/?#]*:\/\/[^/]*)?/;

function routingOf({ method, url = "", originalUrl = url, baseUrl }: NodeRequest): Routing {
  // A router of HTTP/2 may take a method in lower case for the same. HTTP/1.1 has none.
  const routing = { method: method?.toUpperCase(), framework: baseUrl === undefined ? "connect" : "express" } as const;
  // A mount of Connect or Polka leaves the end of the target, and one of Express tells its path. Anything else is rewriting.
  const rest = url.replace(ORIGIN, "").replace(/^\//, "");
  const now = baseUrl !== undefined ? url.replace(ORIGIN, `$&${baseUrl.replaceAll("$", "$$$$")}`) : originalUrl.endsWith(rest) ? originalUrl : url;
  return { ...routing, target: now === originalUrl ? originalUrl : [originalUrl, now] };
}

/** The request as the Fetch API has it, without its body. */
function requestOf({ method = "GET", url = "/", originalUrl = url, headers }: NodeRequest): Request {
  const init = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    // HTTP/2 has pseudo-header fields, whose names are no names of `Headers`.
    if (value !== undefined && !name.startsWith(":")) init.set(name, String(value));
  }
  const authority = headers[":authority"];
  if (typeof authority === "string" && !init.has("host")) init.set("host", authority);
  const parsed = new URL(URL.canParse(originalUrl, "http://localhost") ? originalUrl : "/", "http://localhost");
  // No `Request` has credentials in its URL.
  [parsed.username, parsed.password] = ["", ""];
  return new Request(parsed, {
    method: NO_METHODS.includes(method.toUpperCase()) ? "GET" : method,
    headers: init,
  });
}
