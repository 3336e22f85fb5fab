import * as glue from "#memory/glue";
import module from "#memory/module";
import { random } from "../../answers.js";
import type { Answer } from "../../calls.js";
import { start } from "../../engine.js";
import { Fields } from "../../fields.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, type Options } from "../../options.js";

export * from "../../exports.js";

const engine = start(module, glue);

/**
 * A limiter in the memory of this process: for development, tests, and applications of one process. It is exact, and a decision
 * takes microseconds. Each process and each isolate counts for itself; within one, limiters of the same policy count together.
 * Beyond a million keys, keys share counts.
 *
 *     const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy: { name: "api", quotas: ["10 / 10 s"] } });
 */
export class Tidegate extends Limiter {
  constructor(options: Options) {
    super(engine, common(new Fields(options, "", COMMON), 1_000));
  }

  protected override async ask(): Promise<Answer> {
    return random();
  }
}
