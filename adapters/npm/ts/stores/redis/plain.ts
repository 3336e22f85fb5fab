import { Bytes } from "../../bytes.js";
import type { ByteEngine, Gate } from "../../glue.js";
import type { Question } from "../../question.js";

/** The most keys whose words are remembered. */
const KEYS_MAX = 4_096;

/** A command, as its words. */
export type Command = readonly string[];

/** How the checks by a policy reach a database with the words of `src/call.rs` in `tidegate-redis`. */
export interface PlainOptions {
  /** Whether the server's clock decides, so that all checks of a key and a cost have the same words. */
  serverClock: boolean;
  /** Whether denials are cached: the cache is in the long way. */
  holdMs: number;
}

/**
 * Plain checks: by one window or bucket, without a token. Their script is short, and the answer is read at once. All else takes the
 * long way, on which `decide.lua` decides.
 */
export class Plain {
  readonly #gate: Gate;
  readonly #bytes: Bytes;
  readonly #serverClock: boolean;
  readonly #words = new Map<string, Command>();
  readonly script: string;
  readonly sha1: string;
  /** False if no check by this policy is plain. */
  #exists: boolean;

  constructor(engine: ByteEngine, gate: Gate, { serverClock, holdMs }: PlainOptions) {
    this.#gate = gate;
    this.#bytes = new Bytes(engine);
    this.#serverClock = serverClock;
    this.script = gate.plainScript();
    this.sha1 = gate.plainSha1();
    this.#exists = holdMs === 0 && gate.plain("a", 1, 0) !== "";
  }

  /** The command of a plain check, with the script's SHA-1. Undefined if it is none. */
  command({ kind, key, others, cost, now, token }: Question): Command | undefined {
    if (!this.#exists || kind !== "check" || token !== undefined || others.length > 0) return undefined;
    const isUsual = cost === 1 && this.#serverClock;
    const known = isUsual ? this.#words.get(key) : undefined;
    if (known) return known;
    const words = this.#gate.plain(key, cost, now);
    if (words === "") return undefined;
    const command = ["EVALSHA", this.sha1, ...words.split("\n")];
    if (isUsual) {
      if (this.#words.size >= KEYS_MAX) this.#words.clear();
      this.#words.set(key, command);
    }
    return command;
  }

  /** The same command with the script itself. */
  withScript([, , ...words]: Command): Command {
    return ["EVAL", this.script, ...words];
  }

  /** Reads the text of a decision: see `Shortcut`. */
  read({ cost, now }: Question, text: string): boolean {
    const length = this.#bytes.write(text);
    // A text that is none of the script's is an error, as it would be cut off.
    const read = this.#gate.read(length < 0 ? this.#bytes.write(text.replace(/[^ -~]/g, "?").slice(0, 200)) : length, cost, now);
    if (read === 2) this.#gate.failure(length, cost, now);
    return read === 0;
  }
}
