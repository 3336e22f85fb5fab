// The files that build.sh writes to dist/<store>.

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
    answered(status: number, bytes: Uint8Array, version?: string | undefined): string;
    failed(name: string, message: string): string;
    late(): string;
  }
  export function undecided(kind: string, failsOpen: boolean): string;
  export function start(exports: WebAssembly.Exports): void;
}
