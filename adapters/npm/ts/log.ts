// What limiters and gates tell of failures, as core's `gate/notice.rs` does.

import { quietly } from "./callback.js";
import type { Decision } from "./core/decide.js";
import { type ErrorKind, isStoreFailure, type TidegateError } from "./error.js";
import { FROM_STORE, ORIGIN } from "./numbers.js";
import type { ErrorEvent } from "./options.js";

/** The time between two lines of a kind, in milliseconds. */
const PAUSE_MS = 1_000;

/** The fields of errors that callbacks of the application threw. What they threw is shown, because it is a mistake in them. */
const CALLBACKS: readonly (string | undefined)[] = ["options", "denied"];

/** Names what middlewares tell an error by: the application may have loaded this module twice. */
export const TELL = Symbol.for("@tidegate/edge/tell");

/** What happened to a store that nobody was told of. */
export type Change =
  | { readonly health: "down"; readonly kind: ErrorKind; readonly error: TidegateError }
  | { readonly health: "up"; readonly kind: ErrorKind; readonly error: undefined; readonly afterMs: number; readonly failures: number };

/** Whether a store answers: an outage begins with a failed call and ends with an answer. */
export class Health {
  #outage: { readonly since: number; readonly error: TidegateError; failures: number; isTold: boolean } | undefined;
  #change: Change | undefined;

  /** A call has failed, because the store did not answer. */
  failed(error: TidegateError): void {
    if (!this.#outage) {
      this.#outage = { since: Date.now(), error, failures: 0, isTold: false };
      // An end that was not told in time is told no more.
      this.#change = { health: "down", kind: error.kind, error };
    }
    this.#outage.failures += 1;
  }

  /** A decision was made. That of a loan, or of a cache of denials, says nothing about the store. */
  heard(decision: Decision): Decision {
    const outage = this.#outage;
    if (!outage || decision[ORIGIN] !== FROM_STORE) return decision;
    this.#outage = undefined;
    // An outage that nobody was told of has no end to tell.
    const { error, since, failures, isTold } = outage;
    this.#change = isTold ? { health: "up", kind: error.kind, error: undefined, afterMs: Math.max(Date.now() - since, 0), failures } : undefined;
    return decision;
  }

  get change(): Change | undefined {
    return this.#change;
  }

  /** The change has been told. */
  told(): void {
    this.#change = undefined;
    if (this.#outage) this.#outage.isTold = true;
  }
}

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
