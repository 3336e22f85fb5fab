import { quietly } from "./callback.js";
import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import { FROM_STORE, ORIGIN } from "./decision_numbers.js";
import { type ErrorKind, isStoreFailure, TidegateError } from "./error.js";
import type { Layer, PolicyLayer } from "./layer.js";
import { FailureLog } from "./log.js";
import type { ErrorEvent, Options } from "./options.js";
import type { Question } from "./question.js";

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

/** Tells also what happens to stores: one that goes down is one line, and so is its return. */
export class StoreLog extends FailureLog {
  readonly #stores: Iterable<Watched>;
  readonly #effectOf: (store: Watched) => string;

  /** `effectOf` says what requests get while a store is down. */
  constructor(onError: ((event: ErrorEvent) => unknown) | undefined, stores: Iterable<Watched>, effectOf: (store: Watched) => string) {
    super(onError);
    this.#stores = stores;
    this.#effectOf = effectOf;
  }

  override get hasNews(): boolean {
    for (const { health } of this.#stores) if (health.change) return true;
    return false;
  }

  override tell(event: ErrorEvent | undefined, error: TidegateError | undefined): void {
    let isTold = !event;
    for (const store of this.#stores) {
      const { name, health } = store;
      const { change } = health;
      if (!change) continue;
      const named = name === undefined ? "the store" : `the store "${name}"`;
      const line = change.health === "up" ? isBack(named, change) : `${named} does not answer: ${change.error.message}. ${this.#effectOf(store)}`;
      const isSame = event !== undefined && change.error === error;
      isTold ||= isSame;
      const told: ErrorEvent = isSame ? event : { operation: event?.operation ?? "check", kind: change.kind, message: change.error?.message ?? line, failedOpen: false };
      this.#changed({ ...told, health: change.health, ...(name !== undefined && { store: name }) }, health, line);
    }
    if (!isTold) super.tell(event, error);
  }

  /** Tells that a store has gone down or is back. */
  #changed(event: ErrorEvent, health: Health, line: string): void {
    const isTold = this.each(event);
    const isDown = event.health === "down";
    // An outage that has a line has one for its end.
    if (!isTold && isDown && this.admit(event.kind, false) === undefined) return;
    health.told();
    if (isTold) return;
    // Frameworks put functions of their own in place of the console's, and those may throw.
    quietly(() => (isDown ? console.warn(`tidegate: ${line}. Set onError to get every failure.`) : console.info(`tidegate: ${line}.`)));
  }
}

/** The log of a limiter that counts in one store. */
export function logOf({ onError, failsOpen }: { onError: Options["onError"]; failsOpen: boolean }, store: Watched): StoreLog {
  const effect = `${failsOpen ? "Requests pass uncounted" : "Requests are refused"} until it does`;
  return new StoreLog(onError, [store], () => effect);
}

/** The line of a store that is back. */
function isBack(store: string, { afterMs, failures }: Change & { health: "up" }): string {
  return `${store} answers again after ${afterMs} ms, in which ${failures} of its calls failed`;
}

/** A store, which answers or does not. */
export abstract class StoreLayer implements Layer {
  readonly health = new Health();
  abstract readonly capabilities: Capabilities;

  protected abstract decideNow(question: Question): Decision | undefined;
  protected abstract decide(question: Question): Promise<Decision>;

  known(question: Question): Decision | undefined {
    try {
      const decision = this.decideNow(question);
      return decision && this.health.heard(decision);
    } catch (thrown) {
      throw this.#failed(thrown);
    }
  }

  async ask(question: Question): Promise<Decision> {
    try {
      return this.health.heard(await this.decide(question));
    } catch (thrown) {
      throw this.#failed(thrown);
    }
  }

  #failed(thrown: unknown): TidegateError {
    const error = TidegateError.from(thrown);
    if (isStoreFailure(error)) this.health.failed(error);
    return error;
  }
}

/** A store that counts by one policy. */
export class PolicyStore extends StoreLayer {
  readonly #layer: PolicyLayer;

  constructor(layer: PolicyLayer) {
    super();
    this.#layer = layer;
  }

  get capabilities(): Capabilities {
    return this.#layer.capabilities;
  }

  protected decideNow(question: Question): Decision | undefined {
    return this.#layer.known(question);
  }

  protected decide(question: Question): Promise<Decision> {
    return this.#layer.ask(question);
  }
}
