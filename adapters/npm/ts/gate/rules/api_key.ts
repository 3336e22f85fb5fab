import type { FileValue } from "./file_value.js";

/** The key of an API key, by its hash. `item` is where it is written. */
export function apiKey(hash: string, item: FileValue): string {
  if (/^[\da-f]{32}$/.test(hash)) return `key:${hash}`;
  // It may be the secret itself.
  throw item.invalid("this is not the hash of an API key; write 32 hexadecimal digits in lower case, the first half of its SHA-256");
}
