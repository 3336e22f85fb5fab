import { invalid, type TidegateError } from "./error.js";
import { nearest } from "./nearest_name.js";

/** Reads one of the caller's plain objects field by field. Errors name the place of the wrong value. */
export class Fields {
  readonly #object: Record<string, unknown>;
  readonly #path: string;

  constructor(object: unknown, path: string, known: readonly string[]) {
    only(object, path, known);
    this.#object = object;
    this.#path = path;
  }

  /** The place of a field, as the caller would write it. */
  place(name: string): string {
    return this.#path ? `${this.#path}.${name}` : name;
  }

  get(name: string): unknown {
    return this.#object[name] ?? undefined;
  }

  need<T>(name: string, value: T | undefined, right: string): T {
    if (value === undefined) throw invalid(this.place(name), `missing; write ${right}`);
    return value;
  }

  text(name: string, right: string): string | undefined {
    return this.#typed("string", name, right) as string | undefined;
  }

  call(name: string, right: string): unknown {
    return this.#typed("function", name, right);
  }

  whole(name: string): number | undefined {
    return this.read(name, whole);
  }

  flag(name: string): boolean | undefined {
    return this.read(name, flag);
  }

  /** Reads a field, unless it is absent. */
  read<T>(name: string, reader: (place: string, value: unknown) => T): T | undefined {
    const value = this.get(name);
    return value === undefined ? undefined : reader(this.place(name), value);
  }

  /** The message does not show the value: it may be a secret in another form. */
  #typed(type: "string" | "function", name: string, right: string): unknown {
    return this.read(name, (place, value) => {
      if (typeof value === type) return value;
      throw invalid(place, `not a ${type}; write ${right}`);
    });
  }
}

/** Throws if this is not an object with no other fields than the known ones. */
export function only(object: unknown, path: string, known: readonly string[]): asserts object is Record<string, unknown> {
  isObject(object, path, known);
  for (const name of Object.keys(object)) if (!known.includes(name)) throw unknownField(path, name, known);
}

/** Throws if this is not an object. */
export function isObject(object: unknown, path: string, known: readonly string[]): asserts object is Record<string, unknown> {
  if (typeof object === "object" && object !== null && !Array.isArray(object)) return;
  throw invalid(path || "options", `${shown(object)} is not an object; write { ${known.join(", ")} }`);
}

/** The error about a field that is not known. */
export function unknownField(path: string, name: string, known: readonly string[]): TidegateError {
  return invalid(path ? `${path}.${name}` : name, unknown("field", name, known));
}

/** The names of all fields of a type of options, which the compiler compares with it. */
export function namesOf<Options extends object>(all: Record<keyof Options & string, true>): readonly string[] {
  return Object.keys(all);
}

/** A whole number that is not negative and that JavaScript represents exactly. */
export function whole(place: string, value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw invalid(place, `${shown(value)} is not a whole number; write one from 0 to 9007199254740991`);
}

export function flag(place: string, value: unknown): boolean {
  if (typeof value === "boolean") return value;
  throw invalid(place, `${shown(value)} is neither; write true or false`);
}

/** Reads one of these words. */
export function choice<T extends string>(words: readonly T[]): (place: string, value: unknown) => T {
  return (place, value) => {
    if (words.includes(value as T)) return value as T;
    throw invalid(place, typeof value === "string" ? unknown("value", value, words) : `${shown(value)} is not a string; write ${words.join(" or ")}`);
  };
}

/** A text that has one form in UTF-8, so that no two keys become one. The message does not repeat it: it may be a secret. */
export function text(place: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(place, "not a string");
  if (!isWellFormed(value)) throw invalid(place, "contains a lone surrogate; write well-formed text");
  return value;
}

/** Runtimes of 2022 have no `isWellFormed` yet. */
function isWellFormed(text: string & { isWellFormed?: () => boolean }): boolean {
  return text.isWellFormed?.() ?? !/\p{Surrogate}/u.test(text);
}

/** The message for a name that is not known, with the nearest known name if one is near. */
export function unknown(what: string, name: string, known: readonly string[]): string {
  const near = nearest(name, known);
  const right = near === undefined ? `write one of: ${known.join(", ")}` : `did you mean ${JSON.stringify(near)}?`;
  return `unknown ${what} ${shown(name)}; ${right}`;
}

/** A value in a form that its owner recognizes, at most 40 characters long. */
export function shown(value: unknown): string {
  return ((typeof value === "object" && JSON.stringify(value)) || (typeof value === "string" ? JSON.stringify(value) : String(value))).slice(0, 40);
}
