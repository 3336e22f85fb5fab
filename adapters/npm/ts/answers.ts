// Answers that stores give the WebAssembly.

import type { Answer } from "./calls.js";

export const NOTHING = new Uint8Array();

/** Sixteen random bytes, for stores that need them once. */
export function random(): Answer {
  return [200, crypto.getRandomValues(new Uint8Array(16))];
}
