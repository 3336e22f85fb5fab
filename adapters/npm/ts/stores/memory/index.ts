import * as glue from "#memory/glue";
import module from "#memory/module";
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
 * Beyond a million keys, keys share counts. On Cloudflare Workers, make it in a handler: it needs random numbers.
 *
 *     const tidegate = new Tidegate({ platform: "direct", failMode: "closed", policy: { name: "api", quotas: ["10 / 10 s"] } });
 */
export class Tidegate extends Limiter {
  constructor(options: Options) {
    const fields = new Fields(options, "", COMMON);
    const ready = { ...common(fields, 1_000), secret: crypto.getRandomValues(new Uint32Array(4)) };
    super(engine, ready);
  }

  protected override ask(): Promise<Answer> {
    return Promise.reject(new Error("the memory needs no request"));
  }
}
