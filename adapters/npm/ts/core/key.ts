import { sha256 } from "./sha256.js";

/** The longest key. */
const LEN_MAX = 128;

/** The longest readable start of a key that ends with a mark and a hash. */
const START_LEN_MAX = LEN_MAX - 65;

/** What ends the start. It stays in no key. */
const MARK = "~";

/** The key of all senders whose address nobody knows. */
export const MISSING_IP = "ip:unknown";

/** What the characters of ASCII are in a key: less if they do not stay. A slash stays between two that join. */
const STAYS = 0;
const JOINS = 1;
const SLASH = 2;
// A table, because each decision looks at its key.
const KINDS = Array.from({ length: 128 }, (_, code) => [/[_.@=+-]/, /[A-Za-z\d:]/, /\//].findIndex((kind) => kind.test(String.fromCharCode(code))));

/** The key of each dimension, by the name in the quotas' `by`. A quota without `by` has the name `""`. */
export type Keys = Readonly<Record<string, string>>;

/** What a sender's key begins with. */
const SENDERS = /^(?:sub|key|ip):/;

const encoder = new TextEncoder();

/** The key of a text. */
export function keyOf(text: string, isOfGate: boolean): string {
  return isOwnKey(text, isOfGate) ? text : encoded(encoder.encode(text));
}

/** The same by the host's digest, for who waits anyway. No gate has made the text. */
export function keyLater(text: string): string | Promise<string> {
  return isOwnKey(text, false) ? text : encodedLater(encoder.encode(text));
}

/** Whether a text is its own key. What begins like a sender's key is one already, if it can be one, and so is every text of a gate. */
function isOwnKey(text: string, isOfGate: boolean): boolean {
  return stays(text) || ((isOfGate || SENDERS.test(text)) && isKey(text));
}

/** The key of a text, whatever it begins with. */
export function newKey(text: string): string {
  return stays(text) ? text : encoded(encoder.encode(text));
}

/** Whether a key is that of a missing address, or is made of it and others. */
export function hasMissingIp(key: string): boolean {
  return key.split("%7C").includes(MISSING_IP);
}

/** The key of a verified subject, an API key or an address, in this order. */
export function senderKey(subject: string | undefined, apiKey: string | undefined, address: string | undefined): string {
  if (subject) return newKey(`sub:${subject}`);
  if (apiKey) return apiKeyOf(apiKey);
  return address ? `ip:${address}` : MISSING_IP;
}

/** The key of an API key: half of its hash. */
export function apiKeyOf(secret: string | Uint8Array): string {
  return `key:${digest(secret).slice(0, 32)}`;
}

/** The SHA-256 of a text or of bytes, as hexadecimal digits. */
export function digest(given: string | Uint8Array): string {
  return sha256(typeof given === "string" ? encoder.encode(given) : given);
}

/** Whether a text is a key as it is. A slash stays only between others, because some stores take it for the end of a folder's name. */
function stays(text: string): boolean {
  if (text.length > LEN_MAX) return false;
  for (let at = 0; at < text.length; at++) {
    if (!keeps(KINDS[text.charCodeAt(at)], text.charCodeAt(at - 1), text.charCodeAt(at + 1))) return false;
  }
  return true;
}

/** Whether a character of this kind stays between these. */
function keeps(kind: number | undefined, before: number | undefined, after: number | undefined): boolean {
  return kind === SLASH ? KINDS[before!] === JOINS && KINDS[after!] === JOINS : kind! >= STAYS;
}

/** Whether a text is what became of another one. */
export function isKey(text: string): boolean {
  const mark = text.indexOf(MARK);
  if (mark < 0) return isEncoded(text);
  const start = text.slice(0, mark);
  // The character after the start decides whether a slash at its end was encoded.
  return start.length <= START_LEN_MAX && (isEncoded(start) || isEncoded(`${start}a`)) && /^[\da-f]{64}$/.test(text.slice(mark + 1));
}

function isEncoded(text: string): boolean {
  if (!/^(?:[\0-$&-\x7f]|%[\dA-F]{2})*$/.test(text)) return false;
  const bytes = text.replace(/%(..)/g, (_, digits: string) => String.fromCharCode(parseInt(digits, 16)));
  return readable(Uint8Array.from(bytes, (byte) => byte.charCodeAt(0))) === text;
}

function encoded(bytes: Uint8Array): string {
  const text = readable(bytes);
  return text.endsWith(MARK) ? text + sha256(bytes) : text;
}

async function encodedLater(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  const text = readable(bytes);
  if (!text.endsWith(MARK)) return text;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return text + Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Encodes the bytes that cannot stay, and ends with a mark if that is too long: a hash has to follow. */
function readable(bytes: Uint8Array): string {
  let [text, start] = ["", ""];
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at]!;
    const isKept = keeps(KINDS[byte], bytes[at - 1], bytes[at + 1]);
    text += isKept ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
    if (text.length <= START_LEN_MAX) start = text;
    if (text.length > LEN_MAX) return start + MARK;
  }
  return text;
}
