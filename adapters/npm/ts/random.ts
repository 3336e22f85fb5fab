import type { Answer } from "./calls.js";

/** Sixteen random bytes, for stores that need them once. */
export function random(): Answer {
  return [200, crypto.getRandomValues(new Uint8Array(16))];
}
