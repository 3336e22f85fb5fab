// What stores with conditional writes share.

export type { Answer } from "./calls.js";

/** What the WebAssembly asks of such a store. `version` is null if nothing was stored. */
export type Wanted = [verb: "read" | "write" | "delete", name: string, bytes: number[], version: string | null, ttlMs: number];

/** The longest pause between a conflicting write and the next read. */
export const CONFLICT_PAUSE_MS_MAX = 20;

/** Waits for a random time, because limiters that retry at the same pace could conflict forever. */
export function pause(msMax: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.random() * msMax));
}
