// The files that build.sh writes to dist/<store>.

// The part of Cloudflare's own module that is used.
declare module "cloudflare:workers" {
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    constructor(ctx: object, env: object);
    protected ctx: { storage: { getAlarm(): Promise<number | null>; deleteAll(): Promise<void> } };
    alarm?(): Promise<void>;
  }
}

declare module "#object/rows" {
  /** The rows of an object in its SQLite storage. */
  export class ObjectRows {
    constructor(storage: object);
  }
}

declare module "#*/module" {
  const module: WebAssembly.Module;
  export default module;
}

declare module "#*/glue" {
  export class Gate {
    constructor(options: object);
    dimensions(): string;
    fields(): string;
    key(first?: string, second?: string, peer?: string, subject?: string, apiKey?: string): string;
    caller(): Caller;
    capabilities(): string;
  }
  export class Caller {
    beside(key: string): void;
    check(key: string, cost: number, now: number, token: string | undefined, tokenTtl: number, peeks: boolean): string;
    refund(key: string, cost: number, chargedAt: number, now: number): string;
    settle(key: string, token: string, cost: number, now: number): string;
    reset(key: string): string;
    /** In the module for Workers KV only. */
    flush(now: number): string;
    answered(status: number, bytes: Uint8Array, version?: string | undefined): string;
    failed(name: string, message: string): string;
    late(): string;
  }
  /** In the module for Durable Objects only. */
  export class ObjectCounter {
    constructor(rows: object, alarmMs: number | undefined);
    answer(question: string, now: number): string;
    sweep(now: number): boolean | undefined;
  }
  export function undecided(kind: string, failsOpen: boolean): string;
  export function start(exports: WebAssembly.Exports): void;
}
