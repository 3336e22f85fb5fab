// What stores with conditional writes share.

import { said, type Store } from "./calls.js";
import type { Core } from "./core.js";
import type { VersionedLimit } from "./glue.js";
import { type Question, RESET } from "./question.js";

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

/** The longest pause between a conflicting write and the next read. */
const CONFLICT_PAUSE_MS_MAX = 20;

/** If three isolates compete for a key, each wins one of three attempts, and one decision in 2^37 needs more attempts. */
const ATTEMPTS_MAX = 64;

/** Errors of `@netlify/blobs` that no request can help. */
const REFUSED = ["BlobsConsistencyError", "MissingBlobsEnvironmentError"];

/** Waits for a random time, because limiters that retry at the same pace could conflict forever. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * CONFLICT_PAUSE_MS_MAX));
}

/** A write on its way, and the decision that holds once it is made. */
interface Write {
  name: string;
  version: string | undefined;
  numbers: readonly number[];
}

/** Reads a value, decides, and writes the new one over the version that was read, until no other write comes between. */
export class Versioned implements Store {
  readonly name: string;
  readonly #core: Core<VersionedLimit>;
  readonly #values: Values;

  constructor(name: string, core: Core<VersionedLimit>, values: Values) {
    this.name = name;
    this.#core = core;
    this.#values = values;
  }

  send(question: Question): Promise<unknown> {
    const { kind, cost, now, extra } = question;
    const name = this.#core.text(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra));
    if (kind === RESET) return this.#values.delete(name);
    question.noted = { name, version: undefined, numbers: [] } satisfies Write;
    return this.#values.read(name);
  }

  answered(question: Question, answer: unknown): Promise<unknown> | undefined {
    if (question.kind === RESET) return undefined;
    const write = question.noted as Write;
    if (write.numbers.length === 0) return this.#change(question, write, answer as Found | undefined);
    if (answer === true) {
      // Other decisions have left theirs since.
      this.#core.numbers.set(write.numbers);
      return undefined;
    }
    if (answer !== false) throw this.#refused("a write does not report whether it was made; use a store of @netlify/blobs 10 or newer");
    question.note += 1;
    if (question.note >= ATTEMPTS_MAX) {
      throw ["contended", `this key changed during each of ${ATTEMPTS_MAX} attempts; retry, or allow more attempts`];
    }
    write.numbers = [];
    return pause().then(() => this.#values.read(write.name));
  }

  threw(_question: Question, thrown: unknown): never {
    const kind = REFUSED.includes((Object(thrown) as Partial<Error>).name!) ? "refused" : "unavailable";
    throw [kind, `${this.name}: the store has failed; if it was writing, the request may have been charged (${said(thrown)})`];
  }

  /** Decides by a value, and writes the new one. Undefined if it stays as it is. */
  #change(question: Question, write: Write, found: Found | undefined): Promise<unknown> | undefined {
    const { kind, cost, now, extra, key } = question;
    const [core, { limit }] = [this.#core, this.#core];
    if (found && !found.version) throw this.#refused("a value came without an ETag, so it cannot be written safely");
    core.push(key);
    const changed = limit.read(kind, found ? core.writeBytes(found.bytes) : -1, cost, now, extra);
    if (core.took(changed) === 0) return undefined;
    write.version = found?.version;
    write.numbers = core.read();
    return this.#values.write(write.name, core.bytes(changed), write.version, core.extra);
  }

  #refused(what: string): unknown {
    return ["refused", `${this.name}: ${what}; nothing was charged`];
  }
}
