import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import { FROM_STORE, ORIGIN } from "./decision_numbers.js";
import { type ErrorKind, isStoreFailure, TidegateError } from "./error.js";
import type { Layer, PolicyLayer } from "./layer.js";
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
