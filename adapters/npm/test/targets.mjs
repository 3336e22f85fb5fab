// Request targets as a client that wants to pass a limit writes them: the path of a route, changed by tricks.

/** A small generator of random numbers (mulberry32). */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** From 0, below `most`. */
  below(most) {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % most;
  }

  of(list) {
    return list[this.below(list.length)];
  }

  /** Whether one of so many cases is this one. */
  once(of) {
    return this.below(of) === 0;
  }
}

/** What a client may send as a segment of any text. */
const SEGMENTS = ["acme", "..", ".", "%2e%2e", "%2E", "\\acme", "a\\b", "", "%", "%zz", "a%2fb", "a;b", "a#b", "a.b", "%5Cx", "\xe9", "%C3%A9", "~", "*", "{x}", "login"];

const hex = (random, code) => {
  const digits = code.toString(16).padStart(2, "0");
  return `%${random.once(2) ? digits.toUpperCase() : digits}`;
};
const utf8 = (text) => Buffer.from(text).toString("latin1");
/** A position in a text, for what is put in there. */
const into = (random, text, more) => {
  const at = random.below(text.length + 1);
  return text.slice(0, at) + more + text.slice(at);
};
/** Replaces one of what a pattern finds. */
const one = (random, text, pattern, by) => {
  const found = [...text.matchAll(pattern)];
  if (found.length === 0) return text;
  const { 0: match, index } = random.of(found);
  return text.slice(0, index) + by(match) + text.slice(index + match.length);
};

/** Each takes the path as text, in which a character above `~` is one of the route. */
const TRICKS = [
  (random, path) => one(random, path, /[!-$&-~]/g, (character) => hex(random, character.charCodeAt(0))),
  (random, path) => one(random, path, /\//g, () => random.of(["//", "///", "\\", "/\\", "%2f", "/./", "/%2e/", "/x/../", "/x/%2e%2E/", "/.%2e/", "/;/", "/;x/"])),
  (random, path) => one(random, path, /[a-z]/gi, (letter) => (letter === letter.toLowerCase() ? letter.toUpperCase() : letter.toLowerCase())),
  (_, path) => path.toUpperCase(),
  (random, path) => path + random.of(["/", "//", "/.", "/..", "/x/..", "/%2e", "\\", ".", ".json", ".x", "\xa0", "%20", "%00", "/x", "/__data.json", ".data", ".html", "%3f", "%3Fx", "%23x"]),
  (random, path) => path + random.of(["?", "?x=/login", "?/../..", "#", "#/x", "#?x", "?#", ";", ";x=1", ";x=1/y", ";/../", "?\\", "?%"]),
  (random, path) => random.of(["/", "//", "/.", "/..", "/./", "/x/..", "/%2e%2e", "\\", "/\\", "/#", "/#/x", "/?", "/;", "/*"]) + path,
  (random, path) => into(random, path, random.of([".", "%", "%2", "%25", "%2f", "%5c", "\\", "/", ";", "#", "?", "\xa0", "\xe9", "~", "+", "%2B", "%EF%BB%BF"])),
  (random, path) => one(random, path, /%/g, () => "%25"),
];

/** What comes before an absolute URL's path. */
const ORIGINS = ["http://localhost", "HTTP://x:80", "https://a.b", "http://u:p@h", "http://a,b", "http://a;b", "http://h?", "http://h#", "http://h?x", "http://", "foo://h", "http://[::1]", "http://h\\", "http://a%2f", "ws://h"];

/** A request target for a route whose path has `{}` for a segment of any text, and `*` at the end for more. */
export function targetOf(random, route) {
  let path = route.replace(/\{\w*\}/g, () => random.of(SEGMENTS)).replace(/\*$/, () => Array.from({ length: random.below(3) }, () => random.of(SEGMENTS)).join("/"));
  for (let more = random.below(4); more > 0; more--) path = random.of(TRICKS)(random, path);
  // Text outside ASCII as bytes of UTF-8 or of Latin-1, or escaped, in either case of letters.
  path = path.replace(/[^\x00-\xff]|[\xc0-\xff]+/g, (text) => {
    const own = random.once(3) ? text.toUpperCase() : text;
    return random.of([utf8, () => (/^[\x00-\xff]*$/.test(own) ? own : utf8(own)), encodeURIComponent, (text) => encodeURIComponent(text).toLowerCase()])(own);
  });
  if (random.once(8)) path = random.of(ORIGINS) + path;
  return path.startsWith("/") || /^\w+:/.test(path) ? path : `/${path}`;
}
