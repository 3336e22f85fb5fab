// What the WebAssembly offers. The declarations of the package name these types, so they need no declarations of the glue.

/** The rules of one limiter. */
export interface Gate {
  dimensions(): string;
  fields(): string;
  key(first?: string, second?: string, peer?: string, subject?: string, apiKey?: string): string;
  quotas(): string;
  /** What the client of the decision in the numbers is sent. */
  told(): string;
  caller(): Caller;
  capabilities(): string;
  /** In the module for memory only: decides on the key of this length at `keyAt`. False if it cannot. */
  decide(length: number, cost: number, now: number): boolean;
  /** In the module for Redis only. */
  batchScript(): string;
  plainScript(): string;
  plainSha1(): string;
  /** In the modules for Redis and objects: what a plain check asks the store, one word on each line. Empty if a check is none. */
  plain(key: string, cost: number, now: number): string;
  /** Reads the answer of so many bytes at `bytesAt`: 0 is a decision, 1 none, 2 an error, which `failure` throws. */
  read(length: number, cost: number, now: number): number;
  failure(length: number, cost: number, now: number): void;
}

/** Makes calls, one after another. The methods that begin or resume a call return whether it is done. */
export interface Caller {
  /** The call's next request to the store, if it is not done. */
  wanted(): string;
  beside(key: string): void;
  check(key: string, cost: number, now: number, token: string | undefined, tokenTtl: number, peeks: boolean): boolean;
  refund(key: string, cost: number, chargedAt: number, now: number): boolean;
  settle(key: string, token: string, cost: number, now: number): boolean;
  reset(key: string): boolean;
  block(key: string, span: number, now: number): boolean;
  /** In the module for Workers KV only. Leaves how long to wait until the next flush, or -1. */
  flush(now: number): boolean;
  answered(status: number, bytes: Uint8Array, version?: string | undefined): boolean;
  failed(name: string, message: string): boolean;
  late(): boolean;
}

/** The counts of one Durable Object. */
export interface ObjectCounter {
  answer(question: string, now: number): string;
  /** Returns true if there are more rows to look at, false if rows remain, and undefined if none do. */
  sweep(now: number): boolean | undefined;
}

/** The running WebAssembly of one store. */
export interface Engine {
  Gate: new (options: object) => Gate;
  undecided(kind: string, failsOpen: boolean): string;
  memory(): { readonly buffer: ArrayBuffer };
  /** Where the numbers of the last decision are. */
  numbersAt(): number;
}

/** That which reads bytes of the host: at most 1,024. */
export interface ByteEngine extends Engine {
  bytesAt(): number;
}

/** That for memory. */
export interface MemoryEngine extends ByteEngine {
  seed(a: number, b: number, c: number, d: number): void;
}

/** That for Durable Objects, which is the limiter's and the object's. */
export interface ObjectEngine extends ByteEngine {
  ObjectCounter: new (rows: object, alarmMs: number | undefined) => ObjectCounter;
}
