import type { SharedEngine } from "./glue.js";

/** The most numbers of a decision: 7, and 3 for each of 8 quotas. One more number follows. */
const NUMBERS_MAX = 31;

/** The most bytes that are written at a place that does not move, as in `src/shared.rs`. */
const SHORT_MAX = 128;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** What passes between JavaScript and the WebAssembly: numbers, and the bytes of texts, in memory that both know. */
export class Shared {
  readonly #engine: SharedEngine;
  /** All of the memory. */
  #bytes = new Uint8Array(0);
  /** Where short texts are written. */
  readonly #shortAt: number;
  #numbers = new Float64Array(0);

  constructor(engine: SharedEngine) {
    this.#engine = engine;
    this.#shortAt = engine.bytesAt(SHORT_MAX);
  }

  /** The numbers of the last decision. */
  get numbers(): Float64Array {
    // The memory moves when it grows. Then a view of it has no length.
    if (this.#numbers.length === 0) this.#numbers = new Float64Array(this.#engine.memory().buffer, this.#engine.numbersAt(), NUMBERS_MAX + 1);
    return this.#numbers;
  }

  /** The one more number. */
  get extra(): number {
    return this.numbers[NUMBERS_MAX]!;
  }

  /** Writes a text for the next call. Returns its length in bytes. */
  write(text: string): number {
    const { length } = text;
    const at = this.#at(length);
    const bytes = this.#memory;
    for (let place = 0; place < length; place++) {
      const code = text.charCodeAt(place);
      if (code > 0x7f) return this.writeBytes(encoder.encode(text));
      bytes[at + place] = code;
    }
    return length;
  }

  writeBytes(bytes: Uint8Array): number {
    const at = this.#at(bytes.length);
    this.#memory.set(bytes, at);
    return bytes.length;
  }

  /** Adds a text, or the lack of one, to those that the next call takes. */
  push(text: string | undefined): void {
    this.#engine.push(text === undefined ? -1 : this.write(text));
  }

  /** The text that a call has left, by what it returned. Throws if that was an error. */
  text(returned: number): string {
    return decoder.decode(this.#left(this.took(returned)));
  }

  /** A copy of the bytes that a call has left, by what it returned. */
  bytes(returned: number): Uint8Array<ArrayBuffer> {
    return this.#left(this.took(returned)).slice();
  }

  /** Throws the error that a call has left, if what it returned is negative. */
  took(returned: number): number {
    if (returned >= 0) return returned;
    throw this.error(returned);
  }

  /** The error that a call has left: its kind and its message. */
  error(returned: number): [kind: string, message: string] {
    const text = this.text(-1 - returned);
    const end = text.indexOf("\n");
    return [text.slice(0, end), text.slice(end + 1)];
  }

  #left(length: number): Uint8Array<ArrayBuffer> {
    const at = this.#engine.leftAt();
    return this.#memory.subarray(at, at + length);
  }

  /** Where so many bytes are to be written. */
  #at(length: number): number {
    return length <= SHORT_MAX ? this.#shortAt : this.#engine.bytesAt(length);
  }

  get #memory(): Uint8Array<ArrayBuffer> {
    if (this.#bytes.length === 0) this.#bytes = new Uint8Array(this.#engine.memory().buffer);
    return this.#bytes;
  }
}
