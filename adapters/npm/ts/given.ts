// What an application gives with a request, for limiters and gates.

import { invalid, type TidegateError } from "./error.js";

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

/**
 * The error for what is no `Request`. It is thrown, not a verdict: only the application can cause it, and what it gets in place of one,
 * such as Node.js's `(req, res)`, sends no response that is returned.
 */
export function notRequest(given: unknown): TidegateError | undefined {
  const { headers, url, httpVersion } = Object(given) as { headers?: Partial<Headers>; url?: unknown; httpVersion?: unknown };
  if (typeof headers?.get === "function" && typeof url === "string") return undefined;
  const what = httpVersion === undefined ? "this is" : "this is Node.js's IncomingMessage,";
  return invalid("request", `${what} not a Request; write check(new Request(url, { headers })), limit("user:42") for a key, or the middleware limit(tidegate) of "@tidegate/edge/node"`);
}

/** Whether they have to be waited for. */
export function isPromised<T>(options: Chosen<T>): boolean {
  return typeof options === "function" || "then" in Object(options);
}

/** A text that has one form in UTF-8, so that no two keys become one. The message does not repeat it: it may be a secret. */
export function text(field: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(field, "not a string");
  if (!isWellFormed(value)) throw invalid(field, "contains a lone surrogate; write well-formed text");
  return value;
}

/** Runtimes of 2022 have no `isWellFormed` yet. */
function isWellFormed(text: string & { isWellFormed?: () => boolean }): boolean {
  return text.isWellFormed?.() ?? !/\p{Surrogate}/u.test(text);
}

/** Calls a callback of the application. The async function turns anything that it throws into a rejection. */
export function quietly(callback: () => unknown): void {
  (async () => callback())().catch(() => undefined);
}
