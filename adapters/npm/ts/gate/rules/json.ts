// JSON, with the place of each value.

import { quoted } from "./quoted_text.js";

/** A value, and where it begins in its text. It has exactly one of the four. */
export interface Node {
  readonly at: number;
  /** A number, `true`, `false` or `null`, as it is written. */
  readonly bare?: string;
  readonly text?: string;
  readonly list?: readonly Node[];
  readonly table?: readonly (readonly [name: string, value: Node])[];
}

/** What is wrong with a text, and where. */
export class Mistake {
  constructor(
    readonly at: number,
    readonly what: string,
  ) {}
}

/** How many lists and tables may be in one another. */
const DEPTH_MAX = 127;

const NUMBER = /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/;
const SPACES = /[ \t\n\r]*/y;
const BARE = /[A-Za-z\d+.-]*/y;
const PLAIN = /[^\0-\x1f"\\]*/y;
const DIGITS = /[\da-f]{0,4}/iy;

/** The characters that follow a backslash, and what they stand for. */
const [LETTERS, MEANT] = ['"\\/bfnrt', '"\\/\b\f\n\r\t'];

/** Whether a text is a number of JSON (RFC 8259, section 6). */
export function isNumber(text: string): boolean {
  return NUMBER.test(text);
}

/** Whether a number is one of the two surrogates that stand for a character. */
function isHalf(unit: number): boolean {
  return unit >= 0xd800 && unit < 0xe000;
}

/** A value of a table by its name. */
export function field(node: Node, name: string): Node | undefined {
  let found: Node | undefined;
  for (const [known, value] of node.table ?? []) if (known === name) found = value;
  return found;
}

/** Reads a text. If names are not `unique`, the last value of a name counts. Throws a `Mistake`. */
export function readJson(text: string, unique: boolean): Node {
  let [at, depth] = [0, 0];

  const wrong = (what: string) => new Mistake(at, at < text.length ? what : "EOF while parsing");

  /** Passes the characters that fit, and returns them. */
  const run = (fits: RegExp) => {
    fits.lastIndex = at;
    const found = fits.exec(text)![0];
    at += found.length;
    return found;
  };

  /** The next character that is not a space. */
  const next = () => {
    run(SPACES);
    return text[at];
  };

  const value = (): Node => {
    const first = next();
    const start = at;
    if (first === '"') return { at: start, text: string() };
    if (first === "[") {
      const list: Node[] = [];
      entries("]", () => list.push(value()));
      return { at: start, list };
    }
    if (first === "{") return { at: start, table: table() };
    const bare = run(BARE);
    if (isNumber(bare) || /^(?:true|false|null)$/.test(bare)) return { at: start, bare };
    at = start;
    throw wrong("expected a value");
  };

  const table = () => {
    const [table, names]: [[string, Node][], Set<string>] = [[], new Set()];
    entries("}", () => {
      if (next() !== '"') throw wrong("expected a name in quotes");
      const start = at;
      const name = string();
      if (unique && names.has(name)) throw new Mistake(start, `${quoted(name)} is written twice; write it once`);
      names.add(name);
      if (next() !== ":") throw wrong("expected `:`");
      at += 1;
      table.push([name, value()]);
    });
    return table;
  };

  /** Reads what is between two brackets, with commas in between. */
  const entries = (end: string, read: () => void) => {
    depth += 1;
    if (depth > DEPTH_MAX) throw wrong("too many lists and tables in one another");
    at += 1;
    if (next() !== end) {
      read();
      while (next() !== end) {
        if (text[at] !== ",") throw wrong(`expected \`,\` or \`${end}\``);
        at += 1;
        read();
      }
    }
    at += 1;
    depth -= 1;
  };

  const string = () => {
    let found = "";
    for (;;) {
      // A quote, or the last character of an escape.
      at += 1;
      found += run(PLAIN);
      if (text[at] === '"') break;
      if (text[at] !== "\\") throw wrong("control character in a text; write an escape");
      const escaped = unescaped();
      if (escaped === undefined) throw wrong("invalid escape");
      found += escaped;
    }
    at += 1;
    return found;
  };

  /** The character that is escaped here. Stays at the last character of the escape. */
  const unescaped = () => {
    at += 1;
    const letter = text[at];
    if (letter !== "u") return letter && MEANT[LETTERS.indexOf(letter)];
    const first = fourDigits();
    if (first === undefined) return undefined;
    if (!isHalf(first)) return String.fromCharCode(first);
    if (first >= 0xdc00 || !text.startsWith("\\u", at + 1)) return undefined;
    at += 2;
    const second = fourDigits() ?? 0;
    return isHalf(second) && second >= 0xdc00 ? String.fromCharCode(first, second) : undefined;
  };

  /** Four hexadecimal digits after this character. */
  const fourDigits = () => {
    at += 1;
    const digits = run(DIGITS);
    if (digits.length < 4) return undefined;
    at -= 1;
    return parseInt(digits, 16);
  };

  const node = value();
  if (next() !== undefined) throw wrong("trailing characters");
  return node;
}
