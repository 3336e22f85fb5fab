// What stores with conditional writes share.

import { type Capabilities, COUNTING, EXACT } from "./core/capabilities.js";
import { bytesOf, hexOf, statesOf, written } from "./core/codec.js";
import { copied, type Decision, decide, expiresAfter, peek, refund, unused, verify } from "./core/decide.js";
import type { Core } from "./limiter_core.js";
import { CHECK, PEEK, type Question, REFUND, RESET } from "./question.js";
import { type Call, kindOfLoss, said, type Store } from "./store.js";

/** A value that was read, and its version. Without a version, a write would overwrite whatever is there. */
export interface Found {
  bytes: Uint8Array;
  version: string | undefined;
}

/** The part of such a store that is used. */
export interface Values {
  read(name: string): Promise<Found | undefined>;
  /** Writes over this version, or only if there is no value. Whether it did: undefined if the store does not say. */
  write(name: string, bytes: Uint8Array<ArrayBuffer>, version: string | undefined, ttlMs: number): Promise<boolean | undefined>;
  delete(name: string): Promise<unknown>;
}

/** What such a store supports. A request that reads an old value is denied for too long. */
export function versioned(readsLastWrite: boolean): Capabilities {
  const accuracy = readsLastWrite ? {} : { class: "approximate" as const, accuracy: "approximate: limit <= admitted <= limit" };
  return { ...EXACT, ...accuracy, algorithms: COUNTING, dimensions: "one", block: false, idempotency: false, round_trips: 2 };
}

/** The longest pause between a conflicting write and the next read. */
const CONFLICT_PAUSE_MS_MAX = 20;

/** If three isolates compete for a key, each wins one of three attempts, and one decision in 2^37 needs more attempts. */
const ATTEMPTS_MAX = 64;

/** How much longer than it can matter a value is kept: other hosts' clocks may be behind. */
const SLACK_MS = 10_000;

/** Errors of `@netlify/blobs` that no request can help. */
const REFUSED = ["BlobsConsistencyError", "MissingBlobsEnvironmentError"];

/** Waits for a random time, because limiters that retry at the same pace could conflict forever. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * CONFLICT_PAUSE_MS_MAX));
}

/** A read, or a write on its way with the decision that holds once it is made. */
interface Step {
  name: string;
  decision: Decision | undefined;
}

/** Reads a value, decides, and writes the new one over the version that was read, until no other write comes between. */
export class Versioned implements Store {
  readonly name: string;
  readonly #core: Core;
  readonly #values: Values;
  readonly #ttlMin: number;

  constructor(name: string, core: Core, values: Values, ttlMin = 0) {
    this.name = name;
    this.#core = core;
    this.#values = values;
    this.#ttlMin = ttlMin;
  }

  send(call: Call): Promise<unknown> {
    const { question } = call;
    this.#core.verify(question);
    // The names of Netlify's blobs are paths, and no name can also be a folder.
    const name = this.#core.storage(question).rows[0]!.replaceAll("/", "%2F");
    if (question.kind === RESET) return this.#values.delete(name);
    call.noted = { name, decision: undefined } satisfies Step;
    return this.#values.read(name);
  }

  answered(call: Call, answer: unknown): Promise<unknown> | undefined {
    const { question } = call;
    if (question.kind === RESET) return undefined;
    const step = call.noted as Step;
    if (!step.decision) return this.#change(question, step, answer as Found | undefined);
    if (answer === true) {
      // Other decisions have left theirs since.
      this.#core.decision = step.decision;
      return undefined;
    }
    if (answer !== false) throw this.#refused("a write does not report whether it was made; use a store of @netlify/blobs 10 or newer");
    call.note += 1;
    if (call.note >= ATTEMPTS_MAX) {
      throw ["contended", `this key changed during each of ${ATTEMPTS_MAX} attempts; retry, or allow more attempts`];
    }
    step.decision = undefined;
    return pause().then(() => this.#values.read(step.name));
  }

  threw(_call: Call, thrown: unknown): never {
    // An error of ours.
    if (Array.isArray(thrown)) throw thrown;
    const why = said(thrown);
    const kind = REFUSED.includes((Object(thrown) as Partial<Error>).name!) ? "refused" : kindOfLoss(why);
    throw [kind, `${this.name}: the store has failed; if it was writing, the request may have been charged (${why})`];
  }

  /** Decides by a value, and writes the new one. Undefined if it stays as it is. */
  #change(question: Question, step: Step, found: Found | undefined): Promise<unknown> | undefined {
    if (found && !found.version) throw this.#refused("a value came without an ETag, so it cannot be written safely");
    const { policy, kind, cost, now, extra } = question;
    const before = found ? statesOf(policy.quotas, hexOf(found.bytes)) : unused(policy);
    verify(policy, before, now);
    const after = copied(policy.quotas, before);
    if (kind === REFUND) refund(policy, after, extra, now, cost);
    const decision = kind === CHECK ? decide(policy, after, now, cost) : peek(policy, after, now, kind === PEEK ? cost : 0);
    const text = written(policy.quotas, after);
    // A state that is unused by now still has to overwrite the stored one.
    if (text === written(policy.quotas, before)) {
      this.#core.decision = decision;
      return undefined;
    }
    step.decision = decision;
    const ttl = Math.max(expiresAfter(policy, after, now) + SLACK_MS, this.#ttlMin);
    return this.#values.write(step.name, bytesOf(text), found?.version, ttl);
  }

  #refused(what: string): unknown {
    return ["refused", `${this.name}: ${what}; nothing was charged`];
  }
}
