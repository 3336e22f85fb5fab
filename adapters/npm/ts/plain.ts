import { Bytes } from "./bytes.js";
import type { ByteEngine, Gate } from "./glue.js";
import type { Question } from "./question.js";

/** The most keys whose words are remembered. */
const KEYS_MAX = 4_096;

/** The longest key whose words are remembered: a client may choose a part of it. */
const KEY_LEN_MAX = 256;

/** When the words of a check are the same each time, and when it takes the long way. */
export interface PlainOptions {
  /** Whether the store's clock decides, so that all checks of a key and a cost have the same words. */
  isTimeless: boolean;
  /** Whether denials are cached: the cache is in the long way. */
  holdMs: number;
}

/**
 * Plain checks: of one key, without a token. The store is asked with the words of the WebAssembly, which are remembered, and the
 * answer is read at once. All else takes the long way.
 */
export class Plain<T> {
  readonly #gate: Gate;
  readonly #bytes: Bytes;
  readonly #isTimeless: boolean;
  readonly #made = new Map<string, T>();
  readonly #make: (words: string[]) => T;
  /** False if no check by this policy is plain. */
  readonly #exists: boolean;

  /** `make` makes what is sent of the words. */
  constructor(engine: ByteEngine, gate: Gate, { isTimeless, holdMs }: PlainOptions, make: (words: string[]) => T) {
    this.#gate = gate;
    this.#bytes = new Bytes(engine);
    this.#isTimeless = isTimeless;
    this.#make = make;
    this.#exists = holdMs === 0 && gate.dimensions().split(",").length === 1 && gate.plain("a", 1, 0) !== "";
  }

  /** What is sent for a question. Undefined if it is no plain check. */
  of({ kind, key, cost, now, token }: Question): T | undefined {
    if (!this.#exists || kind !== "check" || token !== undefined) return undefined;
    const isUsual = cost === 1 && this.#isTimeless && key.length <= KEY_LEN_MAX;
    const known = isUsual ? this.#made.get(key) : undefined;
    if (known !== undefined) return known;
    const words = this.#gate.plain(key, cost, now);
    if (words === "") return undefined;
    const made = this.#make(words.split("\n"));
    if (isUsual) {
      if (this.#made.size >= KEYS_MAX) this.#made.clear();
      this.#made.set(key, made);
    }
    return made;
  }

  /** Whether a text is short enough, and of ASCII characters, so that it can be read. */
  takes(text: string): boolean {
    return this.#bytes.write(text) >= 0;
  }

  /** Reads the text of a decision: see `Shortcut`. */
  read({ cost, now }: Question, text: string): boolean {
    const length = this.#bytes.write(text);
    const read = length < 0 ? 1 : this.#gate.read(length, cost, now);
    if (read === 2) this.#gate.failure(length, cost, now);
    return read === 0;
  }
}
