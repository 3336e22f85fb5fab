import type { ByteEngine, Gate } from "../../glue.js";
import { Plain, type PlainOptions } from "../../plain.js";

/** A command, as its words. */
export type Command = readonly string[];

/** Plain checks on Redis: by one window or bucket. Their script is short; `decide.lua` decides on all else. */
export class PlainScript extends Plain<Command> {
  readonly #script: string;

  constructor(engine: ByteEngine, gate: Gate, options: PlainOptions) {
    const sha1 = gate.plainSha1();
    super(engine, gate, options, (words) => ["EVALSHA", sha1, ...words]);
    this.#script = gate.plainScript();
  }

  /** The same command with the script itself. */
  withScript([, , ...words]: Command): Command {
    return ["EVAL", this.#script, ...words];
  }
}
