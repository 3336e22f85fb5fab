// What the WebAssembly offers. The declarations of the package name these types, so they need no declarations of the glue.

/** The rules of one limiter. */
export interface Gate {
  dimensions(): string;
  fields(): string;
  key(first?: string, second?: string, peer?: string, subject?: string, apiKey?: string): string;
  caller(): Caller;
  capabilities(): string;
}

/** Makes calls, one after another. */
export interface Caller {
  beside(key: string): void;
  check(key: string, cost: number, now: number, token: string | undefined, tokenTtl: number, peeks: boolean): string;
  refund(key: string, cost: number, chargedAt: number, now: number): string;
  settle(key: string, token: string, cost: number, now: number): string;
  reset(key: string): string;
  answered(status: number, bytes: Uint8Array, version?: string | undefined): string;
  failed(name: string, message: string): string;
  late(): string;
}

/** The running WebAssembly of one store. */
export interface Engine {
  Gate: new (options: object) => Gate;
  undecided(kind: string, failsOpen: boolean): string;
}
