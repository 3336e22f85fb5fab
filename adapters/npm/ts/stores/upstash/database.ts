import { invalid } from "../../error.js";

/** Where a database is, and what opens it. */
export interface Database {
  url: string;
  token: string;
  /** Whether the host is one of Upstash's own. Others usually pass commands on to a stock Redis, which rejects the script's flag. */
  isUpstash: boolean;
}

const RIGHT_URL = "write https://<database>.upstash.io, which is the database's UPSTASH_REDIS_REST_URL";
const RIGHT_TOKEN = "write the database's UPSTASH_REDIS_REST_TOKEN";
const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\]|\[::ffff:7f[\da-f]{2}:[\da-f]{1,4}\])$/;

/** Checks a URL and a token, as `RestConfig` of `tidegate-redis` does. No message repeats them: a URL may hold a password anywhere. */
export function checkedDatabase(url: string, token: string, allowInsecureHttp: boolean): Database {
  const wrongUrl = (what: string) => invalid("url", `${what}; ${RIGHT_URL}`);
  const wrongToken = (what: string) => invalid("token", `${what}; ${RIGHT_TOKEN}`);
  if (!/^[!#-&(-;=?-[\]-~]+$/.test(url)) throw wrongUrl("has a quote, a space, a line break or another character that no URL has");
  const [scheme, rest] = url.split("://", 2) as [string, string?];
  if (rest === undefined) throw wrongUrl("without a scheme");
  if (/^(redis|valkey)s?$/.test(scheme)) throw wrongUrl(`a ${scheme}:// URL is a Redis endpoint, not a REST one`);
  if (!/^https?$/.test(scheme)) throw wrongUrl("not an https:// URL");
  if (/[?#@]/.test(rest)) throw wrongUrl("must not hold a user, a password, a `?` or a `#`");
  const host = hostOf(url);
  if (host === undefined) throw wrongUrl("no host, or none that can be, or a port that cannot");
  if (scheme === "http" && !allowInsecureHttp && !LOOPBACK.test(host)) {
    throw invalid("url", "http:// would send the token in clear text; write https://, or allow it with allowInsecureHttp");
  }
  if (token.includes("://")) throw wrongToken("this is a URL");
  if (!/^[!#-&(-~]+$/.test(token)) throw wrongToken("has a quote, a space, a line break or another character that no token has");
  return { url, token, isUpstash: host.endsWith(".upstash.io") };
}

function hostOf(url: string): string | undefined {
  try {
    // Not all runtimes refuse the port 0, to which nothing can connect.
    const { hostname, port } = new URL(url);
    return port === "0" ? undefined : hostname;
  } catch {
    return undefined;
  }
}
