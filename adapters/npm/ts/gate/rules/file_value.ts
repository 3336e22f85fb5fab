import { TidegateError } from "../../error.js";
import { field, Mistake, type Node } from "./json.js";
import { quoted } from "./quoted_text.js";
import { suggestion } from "./suggestion.js";

/** A rules file's name and text. */
export interface Source {
  readonly name: string;
  readonly text: string;
  /** Whether the application has given an object, whose text nobody has seen. */
  readonly isObject?: boolean;
  /** What an object was read as. */
  readonly root?: Node;
}

/** Reads the text of a rules file. A mistake becomes an error with its position. */
export function rootOf({ text, ...named }: Source, read: (text: string) => Node): FileValue {
  // Half a character cannot be encoded.
  const source = { ...named, text: text.replace(/[\ud800-\udfff]/gu, "\ufffd") };
  try {
    const root = read(source.text);
    return new FileValue(named.isObject ? { ...source, root } : source, root);
  } catch (thrown) {
    if (thrown instanceof Mistake) throw new TidegateError("invalid", located(source, thrown.at, thrown.what));
    throw thrown;
  }
}

/** A message about what is at this place: with its line and its column in characters, both from 1, or with its place in an object. */
function located({ name, text, isObject, root }: Source, at: number, what: string): string {
  if (isObject) return `${(root && placeOf(root, at)) || "rules"}: ${what}`;
  const lines = text.slice(0, at).split("\n");
  return `${name}:${lines.length}:${[...lines.at(-1)!].length + 1}: ${what}`;
}

/** The place of the value that begins here, such as `.limits.api`. Undefined if it is not in this one. */
function placeIn({ at, list, table }: Node, wanted: number): string | undefined {
  if (at === wanted) return "";
  const inside = list ? list.map((node, nth) => [`[${nth}]`, node] as const) : (table ?? []).map(([name, node]) => [/^[\w-]+$/.test(name) ? `.${name}` : `[${quoted(name)}]`, node] as const);
  for (const [step, node] of inside) {
    const rest = placeIn(node, wanted);
    if (rest !== undefined) return step + rest;
  }
  return undefined;
}

function placeOf(root: Node, at: number): string | undefined {
  return placeIn(root, at)?.replace(/^\./, "");
}

/** A value of a file. */
export class FileValue {
  constructor(
    readonly source: Source,
    readonly node: Node,
  ) {}

  /** A message about this value, with its position. */
  message(what: string): string {
    return located(this.source, this.node.at, what);
  }

  invalid(what: string): TidegateError {
    const { root } = this.source;
    return new TidegateError("invalid", this.message(what), root && placeOf(root, this.node.at));
  }

  /** An error about a text that is written here, which begins its message. */
  wrong(text: string, what: string): TidegateError {
    return this.invalid(`${quoted(text)} ${what}`);
  }

  /** Adds the position of this value to an error. `renamed` has its message in the words of a file. */
  placing<T>(act: () => T, renamed = (message: string) => message): T {
    try {
      return act();
    } catch (thrown) {
      throw thrown instanceof TidegateError ? this.invalid(renamed(thrown.message)) : thrown;
    }
  }

  #expected(what: string): TidegateError {
    const { bare, text, list } = this.node;
    const found =
      bare === undefined
        ? `a ${text !== undefined ? "text" : list ? "list" : "table"}`
        : this.isOn !== undefined
          ? "true or false"
          : /^\d+$/.test(bare)
            ? "a number"
            : bare;
    return this.invalid(`expected ${what}, found ${found}`);
  }

  /** Undefined if it is no flag. */
  get isOn(): boolean | undefined {
    const { bare } = this.node;
    return bare === "true" || (bare === "false" ? false : undefined);
  }

  /** A whole number. It is rounded if it is larger than any that is in a range. */
  get number(): number {
    const { bare = "" } = this.node;
    if (bare.startsWith("-")) throw this.invalid(`${bare} is negative; write a whole number from 0`);
    if (/^\d+$/.test(bare) && (bare.length < 20 || BigInt(bare) < 2n ** 64n)) return Number(bare);
    throw this.#expected("a whole number");
  }

  get text(): string {
    const { text } = this.node;
    if (text === undefined) throw this.#expected("a text");
    return text;
  }

  /** This text, which is a name that is written here. */
  checkedName(what: string, name: string): string {
    if (/^[\w.-]{1,32}$/.test(name)) return name;
    const shown = quoted([...name].slice(0, 40).join(""));
    throw this.invalid(`${what}: ${shown} cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ .`);
  }

  /** Reads each value of a list. */
  each<T>(read: (item: FileValue) => T): T[] {
    if (!this.node.list) throw this.#expected("a list");
    return this.node.list.map((node) => read(new FileValue(this.source, node)));
  }

  /** Reads a value, or each of a list. */
  oneOrEach<T>(read: (item: FileValue) => T): T[] {
    return this.node.list ? this.each(read) : [read(this)];
  }

  /** Reads the name and the value of each entry of a table. */
  entries<T>(read: (name: string, item: FileValue) => T): T[] {
    if (!this.node.table) throw this.#expected("a table");
    return this.node.table.map(([name, node]) => read(name, new FileValue(this.source, node)));
  }

  /** Checks that a table has no other fields than these. */
  only(fields: readonly string[]): void {
    this.entries((name, item) => {
      if (!fields.includes(name)) throw item.invalid(`unknown field \`${name}\`; ${suggestion(name, fields)}`);
    });
  }

  /** A field of a table. */
  field(name: string): FileValue | undefined {
    const node = field(this.node, name);
    return node && new FileValue(this.source, node);
  }

  /** A field that must be there. */
  required(name: string): FileValue {
    const item = this.field(name);
    if (!item) throw this.invalid(`missing field \`${name}\``);
    return item;
  }

  /** The flag of a field. False without it. */
  has(name: string): boolean {
    const item = this.field(name);
    const isOn = item ? item.isOn : false;
    if (isOn === undefined) throw item!.#expected("true or false");
    return isOn;
  }

  /** The number of a field, if it is there, which must be in a range. */
  numberIn(name: string, least: number, most: number): number | undefined {
    const item = this.field(name);
    const number = item?.number;
    if (number === undefined || (number >= least && number <= most)) return number;
    throw item!.invalid(`${item!.node.bare} is out of range; write a whole number from ${least} to ${most}`);
  }

  /** The text of a field, if it is there, which must be one of two. */
  choice(name: string, one: string, other: string): string | undefined {
    const item = this.field(name);
    const text = item?.text;
    if (text === undefined || text === one || text === other) return text;
    throw item!.wrong(text, `is unknown; write "${one}" or "${other}"`);
  }
}
