import * as glue from "#upstash/glue";
import module from "#upstash/module";
import type { Answer } from "./calls.js";
import { Endpoint } from "./endpoint.js";
import { start } from "./engine.js";
import { Limiter } from "./limiter.js";
import { upstash, type UpstashOptions } from "./options.js";

export { type ErrorKind, TidegateError } from "./error.js";
export { type CheckOptions, Limiter } from "./limiter.js";
export type { ErrorEvent, Identity, Operation, Options, Platform, Policy, Quota, UpstashOptions } from "./options.js";
export { type Charge, type Keys, type QuotaStatus, Verdict } from "./verdict.js";

const engine = start(module, glue);

/**
 * A limiter on Upstash. It is exact at any concurrency, and a decision is one HTTP request.
 *
 *     const tidegate = new Tidegate({ url, token, platform: "vercel", failMode: "open", policy });
 *     const verdict = await tidegate.check(request);
 *     if (verdict.response) return verdict.response;
 */
export class Tidegate extends Limiter {
  readonly #endpoint: Endpoint;

  constructor(options: UpstashOptions) {
    const ready = upstash(options);
    super(engine, ready);
    this.#endpoint = new Endpoint(ready);
  }

  protected override ask(wanted: string, signal: AbortSignal | undefined): Promise<Answer> {
    return this.#endpoint.post(wanted, signal);
  }
}
