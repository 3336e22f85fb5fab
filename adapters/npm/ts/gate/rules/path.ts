// Paths in the form that rules compare: without what servers treat as the same path.

/** The most segments of a rule's path. */
export const SEGMENTS_MAX = 32;

/**
 * The segments of a path that a reading keeps. No rule tells those behind apart: one sees whether its path ends, and whether a slash
 * comes last.
 */
export const KEPT = SEGMENTS_MAX + 2;

/** What servers may read in different ways. */
const UNUSUAL = /[%\\?#]|\/(?:[./]|$)/;

// What a server does with a path before it compares it.

/** Takes a backslash for a slash. */
const BACKSLASHES = 1;
/** Leaves out empty segments. */
const MERGE = 2;
/** Takes escaped dots for dots. Only with `DOTS`. */
const ESCAPED_DOTS = 4;
/** Resolves `.` and `..`. */
const DOTS = 8;
/** Decodes the escapes of characters that need none, and writes the others in upper case. */
const DECODE = 16;

/**
 * A path in its normal form (RFC 3986, section 6.2.2): characters that need no percent-encoding are decoded, escapes are in upper case, and
 * `.` and `..` are resolved. A backslash counts as a slash, as in browsers. Empty segments are left out. An escaped slash stays as it is,
 * because it is not a separator. Of a longer path than a rule can have, only the beginning is kept.
 */
export function normal(path: string): string {
  return isNormal(path) ? path : reading(parts(withoutQuery(path), true), BACKSLASHES | MERGE | ESCAPED_DOTS | DOTS | DECODE);
}

/**
 * Calls `found` with the path as each server may read it, until it returns true: the normal form first, the path as it arrived last. At most
 * 24 readings, and one for a path that is already normal.
 */
export function readings(path: string, found: (path: string) => boolean): void {
  if (isNormal(path)) {
    found(path);
    return;
  }
  const own = withoutQuery(path);
  const all = needed(own);
  // A client chooses how long the path is, so it is taken apart once, and not for each reading.
  const one = parts(own, false);
  const other = all & BACKSLASHES ? parts(own, true) : one;
  // All subsets, the largest first.
  for (let steps = all; ; steps = (steps - 1) & all) {
    const isReading = steps & DOTS || !(steps & ESCAPED_DOTS);
    if (isReading && found(reading(steps & BACKSLASHES ? other : one, steps))) return;
    if (steps === 0) return;
  }
}

/** A path without the difference between upper and lower case, for hosts that route so. */
export function inLowerCase(path: string): string {
  return path.replace(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** The segments of a path, or the first `most`. A slash at the end is followed by an empty one. */
export function segments(path: string, most?: number): string[] {
  const rest = path.startsWith("/") ? path.slice(1) : path;
  return rest === "" ? [] : rest.split("/", most);
}

/** Encodes what a path cannot contain unencoded, as a client would. */
export function encoded(path: string): string {
  return path.replace(/[^!$-;=@-_a-~]/gu, encodeURIComponent);
}

/** Whether all servers read a path alike. It may be false for one that they do. */
function isNormal(path: string): boolean {
  return !UNUSUAL.test(path) || path === "/";
}

function withoutQuery(path: string): string {
  return path.split(/[?#]/, 1)[0]!;
}

/** The steps that may change a path. */
function needed(path: string): number {
  let steps = (path.includes("\\") ? BACKSLASHES : 0) | (path.includes("%") ? DECODE : 0);
  const rest = path.replace(/^[/\\]/, "");
  for (const segment of rest.split(/[/\\]/)) {
    if (segment === "" && rest !== "") steps |= MERGE;
    // What remains in front of dots may be empty, and so may what remains after them.
    if (dots(segment) > 0) steps |= DOTS | MERGE | (isEscaped(segment) ? ESCAPED_DOTS : 0);
  }
  return steps;
}

/** A segment of a path as it arrived. */
interface Part {
  readonly text: string;
  /** The text without escapes that are not needed. */
  readonly decoded: string;
  readonly dots: number;
  /** What a server does that takes it for dots. */
  readonly needs: number;
}

/** The segments of a path, without the first separator. */
function parts(path: string, takesBackslashes: boolean): Part[] {
  const own = takesBackslashes ? path.replace(/\\/g, "/") : path;
  const texts = (own.startsWith("/") ? own.slice(1) : own).split("/");
  return texts.map((text) => ({ text, decoded: decoded(text), dots: dots(text), needs: isEscaped(text) ? DOTS | ESCAPED_DOTS : DOTS }));
}

/** The first segments of the path after these steps. */
function reading(parts: readonly Part[], steps: number): string {
  const kept: string[] = [];
  let count = 0;
  const add = (text: string) => {
    if (count < KEPT) kept.push(text);
    count += 1;
  };
  parts.forEach(({ text, decoded, dots, needs }, place) => {
    if (dots > 0 && (steps & needs) === needs) {
      if (dots === 2 && count > 0) {
        count -= 1;
        if (count < KEPT) kept.pop();
      }
      // Dots at the end leave a slash there.
      if (place + 1 === parts.length && !(steps & MERGE)) add("");
    } else if (text !== "" || !(steps & MERGE)) {
      add(steps & DECODE ? decoded : text);
    }
  });
  return kept.map((text) => `/${text}`).join("");
}

/** How many dots a segment is, if it is one or two, of which some may be escaped. */
function dots(segment: string): number {
  // One dot takes one character or three, and two take an even number.
  return segment.length < 7 && /^(?:\.|%2e){1,2}$/i.test(segment) ? 2 - (segment.length % 2) : 0;
}

function isEscaped(segment: string): boolean {
  return segment.includes("%");
}

/** A segment without the escapes of characters that need none, and with the others in upper case. */
function decoded(segment: string): string {
  if (!isEscaped(segment)) return segment;
  return segment.replace(/%([\da-f]{2})/gi, (escape, digits: string) => {
    const character = String.fromCharCode(parseInt(digits, 16));
    return /[!$&-.0-;=@-[\]-_a-~]/.test(character) ? character : escape.toUpperCase();
  });
}
