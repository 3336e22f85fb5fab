// What limiters and gates tell of failures, as core's `gate/notice.rs` does.

import { quietly } from "./callback.js";
import { isStoreFailure, type TidegateError } from "./error.js";
import type { ErrorEvent } from "./options.js";
import type { Change, Health } from "./store_health.js";

/** The time between two lines of a kind, in milliseconds. */
const PAUSE_MS = 1_000;

/** The fields of errors that callbacks of the application threw. What they threw is shown, because it is a mistake in them. */
const CALLBACKS: readonly (string | undefined)[] = ["options", "denied"];

/** Names what middlewares tell an error by: the application may have loaded this module twice. */
export const TELL = Symbol.for("@tidegate/edge/tell");

/** A store, as failures name it, if it has a name. */
export interface Watched {
  readonly name?: string;
  readonly health: Health;
}

/**
 * Tells of failures: every one to `onError`, or else lines on the console. A store that goes down is one line, and so is its return. Of
 * each kind, there is at most one line a second, because while something is wrong, every request would be another.
 */
export class FailureLog {
  readonly #onError: ((event: ErrorEvent) => unknown) | undefined;
  /** The last line of each kind, and how many were not written since. */
  readonly #lines = new Map<string, { readonly at: number; missed: number }>();

  constructor(onError: ((event: ErrorEvent) => unknown) | undefined) {
    this.#onError = onError;
  }

  /** Tells what has happened to the stores, and of the error that there was. `effectOf` says what requests get while a store is down. */
  tell(event: ErrorEvent | undefined, error: TidegateError | undefined, stores: Iterable<Watched>, effectOf: (store: Watched) => string): void {
    let isTold = !event;
    for (const store of stores) {
      const { name, health } = store;
      const { change } = health;
      if (!change) continue;
      const named = name === undefined ? "the store" : `the store "${name}"`;
      const line = change.health === "up" ? isBack(named, change) : `${named} does not answer: ${change.error.message}. ${effectOf(store)}`;
      const isSame = event !== undefined && change.error === error;
      isTold ||= isSame;
      const told: ErrorEvent = isSame ? event : { operation: event?.operation ?? "check", kind: change.kind, message: change.error?.message ?? line, failedOpen: false };
      this.#changed({ ...told, health: change.health, ...(name !== undefined && { store: name }) }, health, line);
    }
    if (isTold) return;
    // Its store has been told of.
    if (isStoreFailure(error)) this.#each(event!);
    else this.failed(event!, error!);
  }

  /** Tells of a failure that is not the store's. `kind` is that of its line, unless it is the error's. */
  failed(event: ErrorEvent, error: TidegateError, kind?: string): void {
    if (this.#each(event)) return;
    const { message, field, cause } = error;
    const missed = this.#admit(kind ?? (CALLBACKS.includes(field) ? field! : event.kind));
    if (missed === undefined) return;
    const others = missed > 0 ? ` ${missed} more were not shown.` : "";
    const why = CALLBACKS.includes(field) && cause !== undefined ? [cause] : [];
    quietly(() => console.warn(`tidegate: ${message}.${others} Set onError to get every failure.`, ...why));
  }

  /** Tells that a store has gone down or is back. */
  #changed(event: ErrorEvent, health: Health, line: string): void {
    const isTold = this.#each(event);
    const isDown = event.health === "down";
    // An outage that has a line has one for its end.
    if (!isTold && isDown && this.#admit(event.kind, false) === undefined) return;
    health.told();
    if (isTold) return;
    // Frameworks put functions of their own in place of the console's, and those may throw.
    quietly(() => (isDown ? console.warn(`tidegate: ${line}. Set onError to get every failure.`) : console.info(`tidegate: ${line}.`)));
  }

  /** Tells `onError`, if there is one. */
  #each(event: ErrorEvent): boolean {
    const onError = this.#onError;
    if (onError) quietly(() => onError(event));
    return onError !== undefined;
  }

  /** How many lines of a kind were not written since the last one. Undefined if it is too early for another. */
  #admit(kind: string, counts = true): number | undefined {
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

/** The line of a store that is back. */
function isBack(store: string, { afterMs, failures }: Change & { health: "up" }): string {
  return `${store} answers again after ${afterMs} ms, in which ${failures} of its calls failed`;
}
