import { invalid, TidegateError } from "./error.js";
import { type FailureLog, TELL } from "./log.js";
import type { Operation } from "./options.js";

/** What limiters and gates share: failures are told. */
export abstract class FrontEnd {
  protected abstract readonly log: FailureLog;

  /** Reports an error of an operation, or of a middleware. */
  [TELL](error: TidegateError, operation: Operation = "check"): void {
    this.tell(operation, error, false);
  }

  /** Reports what has happened to the stores, and the error of an operation, to `onError`, or else on the console. */
  protected tell(operation: Operation, error: TidegateError | undefined, failedOpen: boolean, of?: { rule: string }): void {
    this.log.tell(error && { operation, kind: error.kind, message: error.message, failedOpen, ...of }, error);
  }
}

/** Runs an operation, and reports its error before it throws it. */
export async function told<T>(to: FrontEnd, operation: Operation, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (thrown) {
    const error = TidegateError.from(thrown);
    to[TELL](error, operation);
    throw error;
  }
}

/**
 * The error for what is no `Request`. It is thrown, not a verdict: only the application can cause it, and what it gets in place of one,
 * such as Node.js's `(req, res)`, sends no response that is returned.
 */
export function notRequest(given: unknown): TidegateError | undefined {
  const { headers, url } = Object(given) as { headers?: Partial<Headers>; url?: unknown };
  if (typeof headers?.get === "function" && typeof url === "string") return undefined;
  return invalid("request", `not a Request; write check(new Request(url)), limit("user:42") for a key, or for an IncomingMessage limit(tidegate) of "@tidegate/edge/node"`);
}
