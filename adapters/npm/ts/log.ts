// What limiters and gates tell of failures, as core's `gate/notice.rs` does.

import { quietly } from "./callback.js";
import { isStoreFailure, TidegateError } from "./error.js";
import type { ErrorEvent } from "./options.js";

/** The time between two lines of a kind, in milliseconds. */
const PAUSE_MS = 1_000;

/** The fields of errors that callbacks of the application threw. What they threw is shown, because it is a mistake in them. */
const CALLBACKS: readonly (string | undefined)[] = ["options", "denied"];

/** Names what middlewares tell an error by: the application may have loaded this module twice. */
export const TELL = Symbol.for("@tidegate/edge/tell");

/**
 * Tells of failures: every one to `onError`, or else lines on the console. Of each kind, there is at most one line a second, because while
 * something is wrong, every request would be another.
 */
export class FailureLog {
  readonly #onError: ((event: ErrorEvent) => unknown) | undefined;
  /** The last line of each kind, and how many were not written since. */
  readonly #lines = new Map<string, { readonly at: number; missed: number }>();

  constructor(onError: ((event: ErrorEvent) => unknown) | undefined) {
    this.#onError = onError;
  }

  /** Whether something has happened to a store that nobody was told of. */
  get hasNews(): boolean {
    return false;
  }

  /** Tells of the error of an operation, if there was one. */
  tell(event: ErrorEvent | undefined, error: TidegateError | undefined): void {
    if (!event) return;
    // Its store has been told of.
    if (isStoreFailure(error)) this.each(event);
    else this.failed(event, error!);
  }

  /** Tells of a failure that is not the store's. `kind` is that of its line, unless it is the error's. */
  failed(event: ErrorEvent, error: TidegateError, kind?: string): void {
    if (this.each(event)) return;
    const { message, field, cause } = error;
    const missed = this.admit(kind ?? (CALLBACKS.includes(field) ? field! : event.kind));
    if (missed === undefined) return;
    const others = missed > 0 ? ` ${missed} more were not shown.` : "";
    const why = CALLBACKS.includes(field) && cause !== undefined ? [cause] : [];
    quietly(() => console.warn(`tidegate: ${message}.${others} Set onError to get every failure.`, ...why));
  }

  /** Tells of what the application should change, which is no error of a request. */
  warn(message: string): void {
    const error = new TidegateError("misconfigured", message);
    this.failed({ operation: "check", kind: error.kind, message, failedOpen: false }, error, "warning");
  }

  /** Tells `onError`, if there is one. */
  protected each(event: ErrorEvent): boolean {
    const onError = this.#onError;
    if (onError) quietly(() => onError(event));
    return onError !== undefined;
  }

  /** How many lines of a kind were not written since the last one. Undefined if it is too early for another. */
  protected admit(kind: string, counts = true): number | undefined {
    const [line, now] = [this.#lines.get(kind), Date.now()];
    // A clock that was set back must not silence the log.
    if (line && Math.abs(now - line.at) < PAUSE_MS) {
      if (counts) line.missed += 1;
      return undefined;
    }
    this.#lines.set(kind, { at: now, missed: 0 });
    return line?.missed ?? 0;
  }
}
