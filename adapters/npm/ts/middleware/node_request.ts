// What limiters and gates read of a request of Node.js.

import type { Routing } from "./guard.js";

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

/** Methods that no `Request` has. */
const NO_METHODS = ["CONNECT", "TRACE", "TRACK"];

/** The address of the client: the one that Express finds, or that of the socket. Null if there is none. */
export function addressOf({ ip, socket }: NodeRequest): string | null {
  return ip ?? socket?.remoteAddress ?? null;
}

/** The scheme and the host of a request target that is a URL. */
const ORIGIN = /^(?:[^/?#]*:\/\/[^/]*)?/;

export function routingOf({ method, url = "", originalUrl = url, baseUrl }: NodeRequest): Routing {
  // A router of HTTP/2 may take a method in lower case for the same. HTTP/1.1 has none.
  const routing = { method: method?.toUpperCase(), framework: baseUrl === undefined ? "connect" : "express" } as const;
  // A mount of Connect or Polka leaves the end of the target, and one of Express tells its path. Anything else is rewriting.
  const rest = url.replace(ORIGIN, "").replace(/^\//, "");
  const now = baseUrl !== undefined ? url.replace(ORIGIN, `$&${baseUrl.replaceAll("$", "$$$$")}`) : originalUrl.endsWith(rest) ? originalUrl : url;
  return { ...routing, target: now === originalUrl ? originalUrl : [originalUrl, now] };
}

/** The request as the Fetch API has it, without its body. */
export function requestOf({ method = "GET", url = "/", originalUrl = url, headers }: NodeRequest): Request {
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
