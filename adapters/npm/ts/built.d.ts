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

declare module "#toml/module" {
  const module: import("./gate/engine.js").Loaded;
  export default module;
}

declare module "#toml/glue" {
  /**
   * Reads a text in TOML. Returns JSON: a node, or a mistake if the text is wrong. A node is `[at, kind, value]`, where the kind is 0 for
   * a number, a flag or a date, as a string, 1 for a text, 2 for a list of nodes, and 3 for a table, which is a list of pairs of a name
   * and a node. A mistake is `{ "at": at, "what": text }`. `at` is an index of the text.
   */
  export function read(text: string): string;
  export function start(exports: WebAssembly.Exports): void;
}
