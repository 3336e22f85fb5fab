import { invalid, TidegateError } from "./error.js";
import { type FailureLog, TELL } from "./log.js";
import type { Operation } from "./options.js";
import type { Verdict } from "./verdict.js";

/** What limiters and gates share: failures are told. */
export abstract class FrontEnd {
  protected abstract readonly log: FailureLog;

  /** Reports an error of a middleware. */
  [TELL](error: TidegateError): void {
    this.tell("check", error, undefined);
  }

  /** Reports what has happened to the stores, and the error of an operation, to `onError`, or else on the console. */
  protected tell(operation: Operation, error: TidegateError | undefined, verdict: Verdict | undefined): void {
    const { rule, failedOpen = false } = verdict ?? {};
    const event = error && { operation, kind: error.kind, message: error.message, failedOpen, ...(rule !== undefined && { rule }) };
    this.log.tell(event, error);
  }

  /** Runs an operation, and reports its error before it throws it. */
  protected async told<T>(operation: Operation, run: () => Promise<T>): Promise<T> {
    try {
      return await run();
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.tell(operation, error, undefined);
      throw error;
    }
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
