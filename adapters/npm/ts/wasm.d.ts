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
  const module: import("./engine.js").Loaded;
  export default module;
}

declare module "#rules/glue" {
  export const RulesGate: import("./gate/glue.js").RulesEngine["RulesGate"];
  export function start(exports: WebAssembly.Exports): void;
}

declare module "#rules-toml/glue" {
  export * from "#rules/glue";
}

declare module "#*/glue" {
  type Engine = import("./glue.js").Engine;
  /** Each store knows the functions of its own: see `glue.ts`. */
  export const Limit: { make(): never };
  export const undecided: Engine["undecided"];
  export const memory: Engine["memory"];
  export const numbersAt: Engine["numbersAt"];
  export const bytesAt: Engine["bytesAt"];
  export const leftAt: Engine["leftAt"];
  export const push: Engine["push"];
  /** In the modules for memory and Workers KV only. */
  export const seed: import("./glue.js").MemoryEngine["seed"] & import("./glue.js").KvEngine["seed"];
  /** In the module for Durable Objects only. */
  export const ObjectCounter: import("./glue.js").ObjectEngine["ObjectCounter"];
  export function start(exports: WebAssembly.Exports): void;
}
