import type { Row } from "./rows.js";

/** The size at which a generation is full: some 5,000 rows of one token bucket each. */
const GENERATION_BYTES = 2 ** 20;

/** What objects and maps add to the bytes of a name and its row, roughly. */
const ROW_OVERHEAD_BYTES = 128;

/**
 * Recently used rows, in bounded memory: some 4 MiB. A row enters the young generation when it is used. When that is full it becomes the
 * old one, and the previous old one is dropped: its rows are still in storage.
 */
export class Cache {
  #young = new Map<string, Row>();
  #old = new Map<string, Row>();
  /** The size of the young rows. */
  #bytes = 0;

  get(name: string): Row | undefined {
    const young = this.#young.get(name);
    if (young) return young;
    const old = this.#old.get(name);
    if (old) {
      this.#old.delete(name);
      this.set(name, old);
    }
    return old;
  }

  set(name: string, row: Row): void {
    if (this.#bytes >= GENERATION_BYTES) [this.#old, this.#young, this.#bytes] = [this.#young, new Map(), 0];
    const replaced = this.#young.get(name);
    this.#bytes += size(name, row) - (replaced ? size(name, replaced) : 0);
    this.#young.set(name, row);
  }

  delete(name: string): void {
    const young = this.#young.get(name);
    if (young) this.#bytes -= size(name, young);
    this.#young.delete(name);
    this.#old.delete(name);
  }
}

/** The size of a name and of the bytes that the digits of a row stand for, without its expiry and the dot. */
function size(name: string, { text }: Row): number {
  return name.length + (text.length - 13) / 2 + ROW_OVERHEAD_BYTES;
}
