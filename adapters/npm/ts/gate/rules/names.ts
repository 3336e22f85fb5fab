import { distance } from "../../distance.js";

/** Quotes, controls, and characters that change the direction or the width of others. */
const ESCAPED = /["\\\0-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A text in quotes, with escapes for quotes, line ends and what cannot be seen. */
export function quoted(text: string): string {
  const escape = (one: string) => (/["\\]/.test(one) ? one : one === "\n" ? "n" : `u{${one.charCodeAt(0).toString(16)}}`);
  return `"${text.replace(ESCAPED, (one) => `\\${escape(one)}`)}"`;
}

/** The end of a message about an unknown name: the nearest known name, if one is near, and all of them. */
export function suggestion(unknown: string, known: readonly string[]): string {
  const all = `rite one of ${known.map(quoted).join(", ")}`;
  const near = nearest(unknown, known);
  return near === undefined ? `w${all}` : `did you mean ${quoted(near)}? W${all}`;
}

/** The known name that takes the fewest changes, if these are at most a third of its letters, and not all of them. */
function nearest(unknown: string, known: readonly string[]): string | undefined {
  // Longer than any name: not worth the time.
  if (unknown.length > 64) return undefined;
  let [near, fewest]: [string | undefined, number] = [undefined, Infinity];
  for (const name of known) {
    const changes = distance(unknown, name);
    if (changes < fewest || (changes === fewest && name < near!)) [near, fewest] = [name, changes];
  }
  return near !== undefined && fewest <= Math.ceil(near.length / 3) && fewest < near.length ? near : undefined;
}
