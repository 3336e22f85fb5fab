// Request targets (RFC 9112, section 3.2) as a host receives them, before mounts, rewriting and URL parsing.

/** An absolute URL whose authority all servers read alike. Its path may be empty. */
const ABSOLUTE = /^(?:https?|wss?):\/\/(?:[\w.~!$&'()*+,;=:%-]*@)?(?:[\w.-]+|\[[\da-f:.]+\])(?::\d*)?(?=[/\\?#]|$)/i;

/**
 * The longest path with anything that servers read in different ways, in characters. A client chooses it, and each way takes time. Others may
 * be longer.
 */
const UNUSUAL_MAX = 2_048;

/** What all servers read alike. */
const USUAL = /^(?:\/(?![/.])[\w!$&'()*+,.:;=@|~-]*)*$/;

/**
 * The paths that servers read in a request target, with what follows them. Undefined if it has none that all of them find: it is neither a
 * path, nor an absolute URL with a plain authority, nor `*`, or it is unusual and too long.
 */
export function pathsOf(target: string): readonly string[] | undefined {
  const [authority] = ABSOLUTE.exec(target) ?? [];
  const rest = authority === undefined ? target : target.slice(authority.length);
  if (rest !== "*" && !rest.startsWith("/") && authority === undefined) return undefined;
  const path = rest.split("?", 1)[0]!;
  if (path.length > UNUSUAL_MAX && !USUAL.test(path)) return undefined;
  return [...new Set(startsOf(rest).flatMap(ends).flatMap(texts))];
}

/** A URL without a path has the path `/`. Some routers take it from the first slash on, which may be one of the query. */
function startsOf(rest: string): string[] {
  if (/^[*/\\]/.test(rest)) return [rest];
  const slash = rest.indexOf("/");
  return slash < 0 ? [`/${rest}`] : [`/${rest}`, rest.slice(slash)];
}

/** Some routers do not end a path at `#`, and the URL parser of Node.js leaves out white space at its end. */
function ends(path: string): string[] {
  const withHash = path.replace(/^[^?]*/, (own) => own.replace(/#/g, "%23"));
  return [path, withHash, path.trimEnd()];
}

/** A server of Node.js takes each byte of a path for a character, and others take them for UTF-8. */
function texts(path: string): string[] {
  return [path.replace(/[\x80-\xff]/g, (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`), path];
}
