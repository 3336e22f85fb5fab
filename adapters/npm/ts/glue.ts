// What the WebAssembly offers. The declarations of the package name these types, so they need no declarations of the glue.

/**
 * A limiter of one policy. Texts and bytes are passed by their length, at `bytesAt`. What leaves one, at `leftAt`, returns its length, or a negative
 * number for an error, whose text it has left: see `src/shared.rs`.
 */
export interface Limit {
  text(which: number): number;
  key(): number;
  told(): number;
}

/** A question about a key: its kind, the length of the key, the cost, the time, and one more number. */
type Asking = [kind: number, length: number, cost: number, now: number, extra: number];

export interface MemoryLimit extends Limit {
  ask(...question: Asking): number;
  askKnown(kind: number, key: number, cost: number, now: number, extra: number): number;
  know(length: number): void;
  forget(): void;
}

/** Of a store that may lend. Its calls have numbers. */
export interface AskingLimit extends Limit {
  ask(...question: [...Asking, isLent: boolean]): number;
  due(now: number): number;
  ended(kind: number, call: number): void;
}

export interface RedisLimit extends AskingLimit {
  read(...answer: [...Asking, call: number]): number;
  failed(what: number): number;
}

export interface ObjectLimit extends AskingLimit {
  read(length: number, call: number): number;
  failed(how: number, length: number): number;
}

export interface VersionedLimit extends Limit {
  ask(...question: Asking): number;
  read(...answer: Asking): number;
}

export interface KvLimit extends Limit {
  ask(...question: Asking): number;
  read(kind: number, length: number, cost: number, now: number, value: number): number;
  failed(kind: number, length: number, cost: number, now: number, value: number): number;
  due(now: number): number;
  put(nth: number): number;
  putNames(nth: number): number;
  wrote(): void;
  appoint(now: number): number;
}

export interface RateLimitLimit extends Limit {
  ask(...question: Asking): number;
  read(admitted: boolean, now: number): number;
  failed(length: number): number;
}

/** The counts of one Durable Object. */
export interface ObjectCounter {
  answer(length: number, now: number): number;
  /** Returns 2 if there are more rows to look at, 1 if rows remain, and 0 if none do. */
  sweep(now: number): number;
}

/** The memory of a running WebAssembly, and what passes through it. */
export interface SharedEngine {
  memory(): { readonly buffer: ArrayBuffer };
  numbersAt(): number;
  bytesAt(length: number): number;
  leftAt(): number;
  push(length: number): void;
}

/** The running WebAssembly of one store. */
export interface Engine<L extends Limit = Limit> extends SharedEngine {
  Limit: { make(): L | undefined };
  undecided(length: number, failsOpen: boolean): number;
}

/** That for memory. */
export interface MemoryEngine extends Engine<MemoryLimit> {
  seed(a: number, b: number, c: number, d: number): void;
}

/** That for Workers KV. */
export interface KvEngine extends Engine<KvLimit> {
  seed(a: number, b: number): void;
}

/** That for Durable Objects, which is the limiter's and the object's. */
export interface ObjectEngine extends Engine<ObjectLimit> {
  ObjectCounter: new (rows: object, alarmMs: number | undefined) => ObjectCounter;
}
