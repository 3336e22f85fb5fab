// The files that build.sh writes to dist/.

// The part of Cloudflare's own module that is used.
declare module "cloudflare:workers" {
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    constructor(ctx: object, env: object);
    protected ctx: { storage: { getAlarm(): Promise<number | null>; deleteAll(): Promise<void> } };
    alarm?(): Promise<void>;
  }
}

declare module "#redis/scripts" {
  /** A script by its number in `wire.ts`, with the flag that has the server lock only the script's own keys, or without. */
  export function scriptOf(script: number, locking: boolean): string;
  export function sha1Of(script: number, locking: boolean): string;
  /** The script for several decisions. */
  export function batchScript(locking: boolean): string;
}

declare module "#*/module" {
  const module: import("./gate/engine.js").Loaded;
  export default module;
}

declare module "#rules/glue" {
  export const RulesGate: import("./gate/glue.js").RulesEngine["RulesGate"];
  export function start(exports: WebAssembly.Exports): void;
}

declare module "#rules-toml/glue" {
  export * from "#rules/glue";
}
