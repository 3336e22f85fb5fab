// The options of a method about a request. Limiters and gates read them alike.

import { invalid, TidegateError } from "./error.js";
import { isObject, text, unknownField, whole } from "./fields.js";
import type { Keys } from "./core/key.js";

/** Options, or a function that returns or promises them. */
export type Chosen<T> = T | PromiseLike<T> | (() => T | PromiseLike<T>);

/** The options themselves. Any error makes the request invalid, also that of a store: a request whose options failed never passes. */
export async function chosen<T>(options: Chosen<T>): Promise<T> {
  try {
    return await (typeof options === "function" ? (options as () => T | PromiseLike<T>)() : options);
  } catch (cause) {
    throw invalid("options", "reading them threw", { cause });
  }
}

/** Whether they have to be waited for. */
export function isPromised<T>(options: Chosen<T>): boolean {
  return typeof options === "function" || "then" in Object(options);
}

/** Reads each option that is given, by its name. */
type Readers = Readonly<Record<string, (name: string, value: unknown) => unknown>>;

/** The options that were read: undefined where one is absent. */
export type OptionsOf<R extends Readers> = { readonly [Name in keyof R]?: ReturnType<R[Name]> | undefined };

/** A function that reads options: those that have a reader, and no others. */
export function optionsReader<R extends Readers>(readers: R): (options: unknown) => OptionsOf<R> {
  const known: Partial<Readers> = Object.assign(Object.create(null), readers);
  const names = Object.keys(readers);
  return (options) => {
    try {
      isObject(options, "", names);
      const read: Record<string, unknown> = {};
      for (const name in options) {
        const reader = known[name];
        // What others have added to the prototype of all objects is no option.
        if (!reader && Object.hasOwn(options, name)) throw unknownField("", name, names);
        const value = options[name];
        if (reader && value !== undefined) read[name] = reader(name, value);
      }
      return read as OptionsOf<R>;
    } catch (cause) {
      throw cause instanceof TidegateError ? cause : invalid("options", "reading them threw", { cause });
    }
  };
}

/** The keys of dimensions. */
export function keysOf(name: string, value: unknown): Keys {
  if (typeof value !== "object" || value === null) throw invalid(name, "not an object; write keys: { user, tenant }");
  // What it inherits is not the caller's.
  return Object.fromEntries(Object.entries(value).map(([dimension, key]) => [dimension, text(`${name}.${dimension}`, key)]));
}

/** The address of a connection. Null says that a middleware finds no address. Anything else but an address counts as none. */
export function peerOf(_name: string, value: unknown): string | null | undefined {
  return typeof value === "string" || value === null ? value : undefined;
}

/** The cost that a check says, also if it is an estimate. */
export function costOf({ cost, estimate }: { readonly cost?: number | undefined; readonly estimate?: number | undefined }): number | undefined {
  if (cost === undefined || estimate === undefined) return estimate ?? cost;
  throw invalid("estimate", "it replaces cost; write check(request, { estimate })");
}

/** A whole number that is not zero. */
export function positive(name: string, value: unknown): number {
  const number = whole(name, value);
  if (number === 0) throw invalid(name, "0 is out of range; write at least 1");
  return number;
}

/** A token. A blank one would make every request a retry of the first. */
export function uniqueToken(name: string, value: unknown): string {
  const token = text(name, value);
  if (token.trim() === "") throw invalid(name, "empty; write one that is unique to the request, or leave it out");
  return token;
}
