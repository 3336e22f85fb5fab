import type { ByteEngine } from "./glue.js";

/** The most bytes that are passed so. */
const LENGTH_MAX = 1_024;

/** Writes short texts into the memory of the WebAssembly. */
export class Bytes {
  readonly #engine: ByteEngine;
  #view = new Uint8Array(0);

  constructor(engine: ByteEngine) {
    this.#engine = engine;
  }

  /** Writes a text of ASCII characters. Returns its length, or -1 if it is another text or too long. */
  write(text: string): number {
    const { length } = text;
    if (length > LENGTH_MAX) return -1;
    // The memory moves when it grows. Then a view of it has no length.
    if (this.#view.length === 0) this.#view = new Uint8Array(this.#engine.memory().buffer, this.#engine.bytesAt(), LENGTH_MAX);
    const view = this.#view;
    for (let at = 0; at < length; at++) {
      const code = text.charCodeAt(at);
      if (code > 0x7f) return -1;
      view[at] = code;
    }
    return length;
  }
}
