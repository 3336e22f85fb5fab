/** Quotes, controls, and characters that change the direction or the width of others. */
const ESCAPED = /["\\\0-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A text in quotes, with escapes for quotes, line ends and what cannot be seen. */
export function quoted(text: string): string {
  const escape = (one: string) => (/["\\]/.test(one) ? one : one === "\n" ? "n" : `u{${one.charCodeAt(0).toString(16)}}`);
  return `"${text.replace(ESCAPED, (one) => `\\${escape(one)}`)}"`;
}
