// The part of Cloudflare's own module that is used.
declare module "cloudflare:workers" {
  export function waitUntil(work: Promise<unknown>): void;
  export abstract class DurableObject {
    constructor(ctx: object, env: object);
    protected ctx: { storage: { getAlarm(): Promise<number | null>; deleteAll(): Promise<void> } };
    alarm?(): Promise<void>;
  }
}

declare module "#toml/module" {
  const module: import("./gate/start_wasm.js").Loaded;
  export default module;
}
