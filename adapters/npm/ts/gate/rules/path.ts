// Paths in the form that rules compare: without what servers treat as the same path.

/** The most segments of a rule's path. */
export const SEGMENTS_MAX = 32;

/** How far rules look at a path: none of them tells apart what lies behind so many segments, or so many characters of one. */
export type Reach = readonly [segments: number, characters: number];

/** How far any rules may look: one sees whether its path ends, and whether a slash comes last. */
export const WHOLE: Reach = [SEGMENTS_MAX + 2, Infinity];

/** What servers may read in different ways. */
const UNUSUAL = /[^!$&-;=@-[\]-_a-z|~]|\/(?:[./]|$)/;

/** What has an escape in the normal form, or is one. */
const ESCAPED = /[^!$&-;=@-_a-z|~]/;

/** Each byte as it is written: with an escape, unless it needs none or begins one. */
const WRITTEN = Array.from({ length: 256 }, (_, byte) => {
  const character = String.fromCharCode(byte);
  return /[!$-;=@-_a-z|~]/.test(character) ? character : `%${(256 + byte).toString(16).slice(1).toUpperCase()}`;
});

/** Characters that need an escape and have none. */
const RAW = /[^!$-;=@-_a-z|~]/;

const encoder = new TextEncoder();

/** What may be the escapes of a character outside ASCII. */
const CHARACTER = /%[cd][\da-f]%[89ab][\da-f]|%e[\da-f](?:%[89ab][\da-f]){2}|%f[0-7](?:%[89ab][\da-f]){3}/gi;

/**
 * What a reading does with the escapes of a path, and with characters that a client should escape. `normal`: they are in their normal form.
 * `kept`: the escapes are as they arrived, if there are any, and no character needs another. `raw`: both are as they arrived.
 */
export type Escapes = "normal" | "kept" | "raw";

// What a server does with a path before it compares it.

/** Takes a backslash for a slash. */
const BACKSLASHES = 1;
/** Leaves out empty segments. */
const MERGE = 2;
/** Takes escaped dots for dots. Only with `DOTS`. */
const ESCAPED_DOTS = 4;
/** Resolves `.` and `..`. */
const DOTS = 8;
/** Writes the escapes in their normal form. */
const ESCAPES = 16;
/** Leaves out empty segments at the start. `MERGE` does, too. */
const LEADING = 32;

/**
 * A rule's path without a star at its end: in its normal form, and with the escapes as they are written. A segment of any text is its name
 * in braces in both. Undefined if a brace is inside a segment.
 *
 * The normal form is that of RFC 3986, section 6.2.2: escapes of characters that need none are decoded, all others are in upper case,
 * characters that need an escape have one, and `.` and `..` are resolved. A backslash counts as a slash, as in browsers. Empty segments are
 * left out. An escaped slash stays as it is, because it is not a separator. Of a longer path than a rule can have, only the beginning is kept.
 */
export function rulePath(path: string): [normal: string, written: string] | undefined {
  const all = parts(path, true);
  for (const part of all) {
    const name = /^\{(.*)\}$/s.exec(part.text)?.[1];
    if (/[{}]/.test(name ?? part.text)) return undefined;
    if (name !== undefined) part.text = part.normal = `{${normal(name)}}`;
  }
  const segments = kept(all, BACKSLASHES | MERGE | ESCAPED_DOTS | DOTS, WHOLE);
  return [joined(written(segments, "normal", WHOLE)), joined(written(segments, "text", WHOLE))];
}

/**
 * Calls `found` with the first segments of a path as each server may read it, until it returns true: in the normal form first, as they arrived
 * last. At most 54 readings, and one for a path that is already normal.
 */
export function readings(path: string, reach: Reach, found: (segments: readonly string[], escapes: Escapes) => boolean): void {
  if (isNormal(path)) {
    found(segments(path, reach[0]), "kept");
    return;
  }
  const own = path.split("?", 1)[0]!.split("#", 1)[0]!;
  // A client chooses how long the path is, so it is taken apart once, and not for each reading.
  const one = parts(own, false);
  const other = own.includes("\\") ? parts(own, true) : one;
  const all = needed(own, other);
  // Which segments are kept does not depend on how they are written.
  const known: Segments[] = [];
  // A client also chooses which steps change nothing, so equal readings are found once.
  const before = new Set<string>();
  // All subsets, the largest first.
  for (let steps = all; ; steps = (steps - 1) & all) {
    if ((steps & DOTS || !(steps & ESCAPED_DOTS)) && !(steps & MERGE && all & ~steps & LEADING)) {
      const segments = (known[steps & ~ESCAPES] ??= kept(steps & BACKSLASHES ? other : one, steps, reach));
      const form = steps & ESCAPES ? "normal" : "text";
      const texts = written(segments, form, reach);
      const reading = form + texts.join("/");
      if (!before.has(reading)) {
        before.add(reading);
        // A server may keep what has no escape, or give it one.
        const isRaw = form === "text" && segments.some((part) => RAW.test(part?.text ?? ""));
        if (found(texts, steps & ESCAPES ? "normal" : isRaw ? "raw" : "kept")) return;
        if (isRaw && found(texts.map(withEscapes), "normal")) return;
      }
    }
    if (steps === 0) return;
  }
}

/**
 * A reading of a path without the difference between upper and lower case, for hosts that route so. The letters of the escapes are in lower
 * case, too.
 */
export function inLowerCase(path: string, escapes: Escapes): string {
  if (escapes !== "normal" || !path.includes("%")) return path.toLowerCase();
  const text = path.replace(CHARACTER, character);
  return text.toLowerCase().replace(/[^\0-\x7f]+/g, (letters) => encodeURIComponent(letters).toLowerCase());
}

/** The character that has these escapes, or the escapes, if they are not UTF-8. */
function character(escapes: string): string {
  try {
    return decodeURIComponent(escapes);
  } catch {
    return escapes;
  }
}

/** The segments of a path, or the first `most`. A slash at the end is followed by an empty one. */
export function segments(path: string, most?: number): string[] {
  const rest = path.startsWith("/") ? path.slice(1) : path;
  return rest === "" ? [] : rest.split("/", most);
}

/** The path of segments. */
export function joined(segments: readonly string[]): string {
  return segments.map((text) => `/${text}`).join("");
}

/** Whether all servers read a path alike. It may be false for one that they do. */
export function isNormal(path: string): boolean {
  return !UNUSUAL.test(path) || path === "/";
}

/** The steps that may change a path of these parts. */
function needed(path: string, parts: readonly Part[]): number {
  let steps = (path.includes("\\") ? BACKSLASHES : 0) | (ESCAPED.test(path) ? ESCAPES : 0);
  // What remains in front of dots may be empty, and so may what remains after them.
  for (const { dots, needs } of parts) if (dots > 0) steps |= MERGE | needs;
  // Dots can bring an empty segment to the start.
  if (parts.length > 1 && parts.some(({ text }) => text === "")) steps |= MERGE | (parts[0]!.text === "" || steps & DOTS ? LEADING : 0);
  return steps;
}

/** A segment of a path as it arrived. */
interface Part {
  text: string;
  /** The text with its escapes in their normal form, once a reading has asked: of a long path, it asks for few. */
  normal?: string;
  readonly dots: number;
  /** What a server does that takes it for dots. */
  readonly needs: number;
}

/** The segments that a reading keeps, with undefined for an empty one that dots leave. */
type Segments = readonly (Part | undefined)[];

/** The segments of a path, without the first separator. */
function parts(path: string, takesBackslashes: boolean): Part[] {
  const own = takesBackslashes ? path.replace(/\\/g, "/") : path;
  const texts = (own.startsWith("/") ? own.slice(1) : own).split("/");
  return texts.map((text) => ({ text, dots: dots(text), needs: text.includes("%") ? DOTS | ESCAPED_DOTS : DOTS }));
}

/** The first segments of a path after these steps. */
function kept(parts: readonly Part[], steps: number, [most]: Reach): Segments {
  const merges = steps & MERGE;
  const segments: (Part | undefined)[] = [];
  let count = 0;
  let isDots = false;
  for (const part of parts) {
    isDots = part.dots > 0 && (steps & part.needs) === part.needs;
    if (isDots) {
      if (part.dots === 2 && count > 0) count--;
    } else if (part.text !== "" || !(merges || (count === 0 && steps & LEADING))) {
      if (count < most) segments[count] = part;
      // Without dots, nothing brings those behind to the front.
      else if (!(steps & DOTS)) break;
      count++;
    }
  }
  // Dots at the end leave a slash there.
  if (isDots && !merges) segments[count++] = undefined;
  return segments.slice(0, Math.min(count, most));
}

/** Segments in a form, as far as rules look. */
function written(segments: Segments, form: "text" | "normal", [, most]: Reach): string[] {
  const texts = segments.map((part) => {
    const text = part?.text.slice(0, most) ?? "";
    return part && form === "normal" ? (part.normal ??= normal(text)) : text;
  });
  // A slash alone is no segment.
  return texts.length === 1 && texts[0] === "" ? [] : texts;
}

/** How many dots a segment is, if it is one or two, of which some may be escaped. */
function dots(segment: string): number {
  // One dot takes one character or three, and two take an even number.
  return segment.length < 7 && /^(?:\.|%2e){1,2}$/i.test(segment) ? 2 - (segment.length % 2) : 0;
}

/** A path with an escape for each character that needs one, and with its own escapes as they are. */
function withEscapes(path: string): string {
  let out = "";
  // A lone surrogate becomes the replacement character.
  for (const byte of encoder.encode(path)) out += WRITTEN[byte];
  return out;
}

/** A segment with its escapes in the normal form. A percent sign that begins no escape stays as it is. */
function normal(segment: string): string {
  if (!ESCAPED.test(segment)) return segment;
  return withEscapes(
    segment.replace(/%[\da-f]{2}/gi, (found) => {
      const character = String.fromCharCode(parseInt(found.slice(1), 16));
      return /[!$&-.0-;=@-[\]-_a-z|~]/.test(character) ? character : found.toUpperCase();
    }),
  );
}
