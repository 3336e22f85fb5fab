import type { FileValue } from "./file_value.js";
import { inLowerCase, rulePath, SEGMENTS_MAX, segments } from "./path.js";
import { quoted } from "./quoted_text.js";

/** What a rule matches. */
export interface Pattern {
  /** All hosts, one, or all that end with a dot and the name. In lower case. */
  readonly host: { readonly kind: "any" | "exact" | "below"; readonly name: string };
  /** In its normal form. */
  readonly path: {
    /** Undefined for a segment of any text. */
    readonly segments: readonly (string | undefined)[];
    /** As the file has them, for servers that decode no path: a text, or the name of a segment of any text in braces. */
    readonly written: readonly string[];
    /** Whether more segments may follow. */
    readonly isPrefix: boolean;
  };
  /** In upper case. Empty for all. `GET` matches `HEAD` too. */
  readonly methods: readonly string[];
  /** The header fields that must be present, in lower case. */
  readonly headers: readonly string[];
  /** The bot score that a request's must be less than. */
  readonly scoreBelow: number | undefined;
}

/** A token as in RFC 9110, section 5.6.2. */
const TOKEN = /^[\w!#$%&'*+.^`|~-]{1,64}$/;

/** What a rule matches. */
export function patternOf(rule: FileValue, ignoresCase: boolean): Pattern {
  const [host, path] = [rule.field("host"), rule.field("path")];
  return {
    host: host ? hostOf(host) : { kind: "any", name: "" },
    path: path ? pathOf(path, ignoresCase) : { segments: [], written: [], isPrefix: true },
    methods: rule.field("methods")?.each(method) ?? [],
    headers: rule.field("headers")?.each(fieldName) ?? [],
    scoreBelow: rule.numberIn("bot_score_below", 1, 255),
  };
}

/** The name of a header field, in lower case. */
export function fieldName(item: FileValue): string {
  if (TOKEN.test(item.text)) return item.text.toLowerCase();
  throw misread(item, "cannot be the name of a header field; write one such as x-api-key");
}

function misread(item: FileValue, fix: string): Error {
  return item.invalid(`${quoted(item.text)}: ${fix}`);
}

function method(item: FileValue): string {
  if (TOKEN.test(item.text) && !/[a-z]/.test(item.text)) return item.text;
  throw misread(item, "is not a method; write one in upper case, such as POST");
}

function hostOf(item: FileValue): Pattern["host"] {
  const isBelow = item.text.startsWith("*.");
  const name = isBelow ? item.text.slice(2) : item.text;
  if (/^$|^\.|\.$/.test(name) || !/^([\w.-]*|\[[\da-f:.]*\])$/i.test(name)) {
    throw misread(item, "is not a host; write one without a port, such as api.example.com or *.example.com");
  }
  return { kind: isBelow ? "below" : "exact", name: name.toLowerCase() };
}

function pathOf(item: FileValue, ignoresCase: boolean): Pattern["path"] {
  const { text } = item;
  if (!text.startsWith("/")) throw misread(item, "is not a path; begin it with a slash, as in /api/*");
  if (/[?#]/.test(text)) throw misread(item, "has a query or a fragment; rules match the path only");
  const isPrefix = text.endsWith("/*");
  const start = isPrefix ? text.slice(0, -2) : text;
  if (start.includes("*")) throw misread(item, "has a star inside; write it only at the end, as in /api/*, and {name} for one segment");
  const read = rulePath(start);
  if (!read) throw misread(item, "has a brace inside a segment; write {name} for a whole segment, and %7B or %7D for a brace");
  const [normal, written] = [segments(read[0]), segments(read[1])];
  if (normal.length > SEGMENTS_MAX) throw misread(item, "has more than 32 segments; write a shorter one that ends with /*");
  const isAny = (segment: string) => segment.startsWith("{");
  const cased = (texts: string[], escapes: "normal" | "kept") =>
    texts.map((text) => (ignoresCase && !isAny(text) ? inLowerCase(text, escapes) : text));
  return { segments: cased(normal, "normal").map((text) => (isAny(text) ? undefined : text)), written: cased(written, "kept"), isPrefix };
}

/** Such as `GET /api/*` or `any method, api.example.com/*, with x-api-key`. */
export function textOf(pattern: Pattern): string {
  const { methods, headers, scoreBelow } = pattern;
  const score = scoreBelow === undefined ? [] : [`a bot score below ${scoreBelow}`];
  const conditions = [...headers, ...score].map((condition) => `, with ${condition}`);
  return (methods.length > 0 ? `${methods.join(" or ")} ` : "any method, ") + placeOf(pattern) + conditions.join("");
}

/** Its methods, host and path, such as `POST /login` or `/api/*`. */
export function short(pattern: Pattern): string {
  return pattern.methods.length > 0 ? textOf({ ...pattern, headers: [], scoreBelow: undefined }) : placeOf(pattern);
}

/** Its host and path. */
function placeOf({ host, path }: Pattern): string {
  // A star in a path is not one at its end.
  const texts = path.segments.map((segment, nth) => (segment === "*" ? "%2A" : (segment ?? path.written[nth]!)));
  const end = path.isPrefix ? "/*" : texts.length > 0 ? "" : "/";
  return (host.kind === "below" ? "*." : "") + host.name + texts.map((text) => `/${text}`).join("") + end;
}

/** The same text for the same hosts and paths. */
export function identityOf({ host, path }: Pattern): string {
  return JSON.stringify([host, path.segments, path.isPrefix]);
}

// These compare two patterns of the same hosts and paths, of which the first comes first in the file.

/** Whether each request that matches `two` matches `one` too. */
export function covers(one: Pattern, two: Pattern): boolean {
  const all = (these: readonly string[], those: readonly string[]) => these.every((name) => those.includes(name));
  const methods = one.methods.length === 0 || (two.methods.length > 0 && all(two.methods, one.methods));
  const scores = one.scoreBelow === undefined || (two.scoreBelow ?? Infinity) <= one.scoreBelow;
  return methods && scores && all(one.headers, two.headers);
}

/** Whether `one` applies to a request that matches both. */
export function precedes(one: Pattern, two: Pattern): boolean {
  return specificity(one) >= specificity(two);
}

/** Whether only the order in the file decides on some requests that match both. */
export function isUnorderedWith(one: Pattern, two: Pattern): boolean {
  const meets = one.methods.length === 0 || one.methods.some((method) => two.methods.includes(method));
  return meets && specificity(one) === specificity(two);
}

/** A pattern with methods precedes one without, then one with more headers, then one with a lower score. */
export function specificity({ methods, headers, scoreBelow }: Pattern): number {
  return (methods.length > 0 ? 2 ** 40 : 0) + headers.length * 2 ** 8 + (scoreBelow === undefined ? 0 : 2 ** 8 - scoreBelow);
}
