// Reads JSON that people write and tells where it is wrong, in the words of `serde_json`, which the program in Rust has.

import { isNumber, Mistake, type Node, readJson } from "../gate/rules/json.js";
import { distance } from "../nearest_name.js";

/** What is wrong in a document, after the place, such as `steps[2].expect.passed`. */
export class Wrong extends Error {
  constructor(
    readonly place: string,
    readonly what: string,
  ) {
    super(place === "" ? what : `${place}: ${what}`);
  }
}

/** A value of a document. */
export class JsonValue {
  readonly #text: string;
  readonly #node: Node;
  readonly place: string;

  constructor(text: string, node: Node, place: string) {
    this.#text = text;
    this.#node = node;
    this.place = place;
  }

  /** The document of a text. */
  static of(text: string): JsonValue {
    try {
      return new JsonValue(text, readJson(text, false), "");
    } catch (thrown) {
      if (thrown instanceof Mistake) throw new Wrong("", `${thrown.what}${positionIn(text, thrown.at)}`);
      throw thrown;
    }
  }

  get node(): Node {
    return this.#node;
  }

  get isNull(): boolean {
    return this.#node.bare === "null";
  }

  /** A text. */
  text = (): string => this.#node.text ?? this.#mistyped("a string");

  /** One of these texts. */
  choice<T extends string>(names: readonly T[]): T {
    const { text } = this.#node;
    if (names.includes(text as T)) return text as T;
    if (text === undefined) throw this.#wrong(`expected value${this.#position(this.#node.at + 1)}`);
    throw this.#wrong(near("variant", text, names, this.#position(this.#end)));
  }

  /** A whole number of so many bits. */
  whole(bits: 8 | 16 | 64): number {
    const { bare } = this.#node;
    if (bare === undefined || !isNumber(bare)) return this.#mistyped(`u${bits}`);
    const isWhole = /^-?\d+$/.test(bare);
    const found = isWhole ? BigInt(bare) : 0n;
    if (isWhole && found >= 0n && found < 2n ** BigInt(bits)) return Number(found);
    const what = isWhole && found >= -(2n ** 63n) && found < 2n ** 64n ? `value: integer \`${found}\`` : `type: floating point \`${Number(bare)}\``;
    throw this.#wrong(`invalid ${what}, expected u${bits}${this.#position(this.#end)}`);
  }

  /** The values of a list. */
  each<T>(read: (value: JsonValue) => T): T[] {
    const { list } = this.#node;
    if (!list) return this.#mistyped("a sequence");
    return list.map((node, nth) => read(new JsonValue(this.#text, node, `${this.place}[${nth}]`)));
  }

  /** A name and a value. */
  pair(): readonly [string, string] {
    const [one, two, ...others] = this.#node.list ? this.each((value) => value.text()) : this.#mistyped<string[]>("a tuple of size 2");
    if (one !== undefined && two !== undefined && others.length === 0) return [one, two];
    throw this.#wrong(`invalid length ${this.#node.list!.length}, expected a tuple of size 2${this.#position(this.#end)}`);
  }

  /** The values of a table whose names are free. */
  entries<T>(read: (value: JsonValue) => T): Record<string, T> {
    const { table } = this.#node;
    if (!table) return this.#mistyped("a map");
    return Object.fromEntries(table.map(([name, node]) => [name, read(new JsonValue(this.#text, node, this.#inside(name)))]));
  }

  /** Reads each field of a table by its name. `type` is the name of the table. */
  fields<T extends object>(type: string, readers: { [Name in keyof T]-?: (value: JsonValue) => T[Name] }, required: readonly (keyof T & string)[]): Partial<T> {
    const { table } = this.#node;
    if (!table) return this.#mistyped(`struct ${type}`);
    const known = Object.keys(readers);
    const found = new Map<string, unknown>();
    for (const [name, node] of table) {
      const position = () => this.#position(this.#text.slice(0, node.at).replace(/\s*:\s*$/, "").length);
      if (!known.includes(name)) throw new Wrong(this.#inside(name), near("field", name, known, position()));
      if (found.has(name)) throw this.#wrong(`duplicate field \`${name}\`${position()}`);
      found.set(name, (readers as Record<string, (value: JsonValue) => unknown>)[name]!(new JsonValue(this.#text, node, this.#inside(name))));
    }
    const lacking = required.find((name) => !found.has(name));
    if (lacking !== undefined) throw this.#wrong(`missing field \`${lacking}\`${this.#position(this.#end)}`);
    return Object.fromEntries([...found].filter(([, value]) => value !== undefined)) as Partial<T>;
  }

  #inside(name: string): string {
    return this.place === "" ? name : `${this.place}.${name}`;
  }

  #wrong(what: string): Wrong {
    return new Wrong(this.place, what);
  }

  #mistyped<T>(expected: string): T {
    const { bare, text, list } = this.#node;
    const isInside = bare !== undefined || text !== undefined;
    const found =
      text !== undefined
        ? `string ${JSON.stringify(text)}`
        : bare === undefined
          ? list
            ? "sequence"
            : "map"
          : bare === "null"
            ? bare
            : !isNumber(bare)
              ? `boolean \`${bare}\``
              : /^-?\d+$/.test(bare)
                ? `integer \`${bare}\``
                : `floating point \`${Number(bare)}\``;
    throw this.#wrong(`invalid type: ${found}, expected ${expected}${this.#position(isInside ? this.#end : this.#node.at)}`);
  }

  /** Where the text of this value ends. */
  get #end(): number {
    const { at, bare, text } = this.#node;
    if (bare !== undefined) return at + bare.length;
    const rest = this.#text.slice(at);
    if (text !== undefined) return at + /^"(?:[^"\\]|\\.)*"/s.exec(rest)![0].length;
    let depth = 0;
    for (const { 0: part, index } of rest.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{}]/gs)) {
      if (part === "[" || part === "{") depth += 1;
      if (part === "]" || part === "}") depth -= 1;
      if (depth === 0) return at + index + 1;
    }
    return this.#text.length;
  }

  #position(at: number): string {
    return positionIn(this.#text, at);
  }
}

/** The line from 1, and the bytes of it before this place. */
function positionIn(text: string, at: number): string {
  const lines = text.slice(0, at).split("\n");
  return ` at line ${lines.length} column ${Buffer.byteLength(lines.at(-1)!)}`;
}

/** A message about an unknown name, with the nearest. */
function near(what: string, unknown: string, known: readonly string[], position: string): string {
  const message = `unknown ${what} \`${unknown}\`, expected one of ${known.map((name) => `\`${name}\``).join(", ")}${position}`;
  const [nearest] = known.map((name) => [distance(unknown, name), name] as const).sort(([one, a], [other, b]) => one - other || (a < b ? -1 : 1));
  return nearest && nearest[0] <= 3 ? `${message}; did you mean \`${nearest[1]}\`?` : message;
}
