import * as glue from "#rate-limit/glue";
import module from "#rate-limit/module";
import { calls, said, type Store } from "../../calls.js";
import type { Core } from "../../core.js";
import { start } from "../../engine.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import type { RateLimitLimit } from "../../glue.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import type { Question } from "../../question.js";

export * from "../../exports.js";

/** A binding of Cloudflare's Rate Limiting API. */
export interface Binding {
  limit(options: { key: string }): Promise<{ success: boolean }>;
}

/** The options of a limiter on the Rate Limiting binding. */
export interface RateLimitOptions extends Omit<Options, "platform"> {
  /** `env.LIMITER`, the binding. If it is missing, the first check reports it. */
  binding: Binding | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
}

const engine = start(module, glue);

/**
 * A limiter on Cloudflare's Rate Limiting binding, which counts at each location for itself and costs nothing. The policy has one
 * fixed window with the limit and the period of the binding, of 10 or 60 seconds. A request costs 1, and a verdict does not
 * know what remains.
 *
 *     // wrangler.jsonc: "ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]
 *     const policy = { name: "api", quotas: [{ fixedWindow: { limit: 100, windowMs: 60_000 } }] };
 *     const tidegate = new Tidegate({ binding: env.LIMITER, failMode: "open", policy });
 */
export class Tidegate extends Limiter {
  constructor(options: RateLimitOptions) {
    const fields = new Fields(options, "", [...COMMON, "binding"]);
    const binding = fields.get("binding") as Binding | undefined;
    const right = `"ratelimits": [{ "name": "LIMITER", "namespace_id": "1001", "simple": { "limit": 100, "period": 60 } }]`;
    if (binding !== undefined && typeof binding.limit !== "function") {
      throw invalid("binding", `not a Rate Limiting binding; in wrangler.jsonc, write ${right}`);
    }
    const ready = {
      ...common(fields, 250, "cloudflare"),
      apart: true,
      broken: binding === undefined ? missing("binding", `in wrangler.jsonc, write ${right}`) : undefined,
    };
    super(engine, ready, [], (core: Core<RateLimitLimit>) => calls(new Counter(core, binding!), core, ready));
  }
}

/** Asks the binding. */
class Counter implements Store {
  readonly name = "Rate Limiting binding";
  readonly #core: Core<RateLimitLimit>;
  readonly #binding: Binding;

  constructor(core: Core<RateLimitLimit>, binding: Binding) {
    this.#core = core;
    this.#binding = binding;
  }

  send(question: Question): Promise<boolean> {
    const { kind, cost, now, extra } = question;
    return this.#count(this.#core.text(this.#core.limit.ask(kind, this.#core.pass(question), cost, now, extra)));
  }

  answered({ now }: Question, answer: unknown): undefined {
    this.#core.limit.read(Boolean(answer), now);
  }

  threw(_question: Question, thrown: unknown): undefined {
    this.#core.took(this.#core.limit.failed(this.#core.write(said(thrown))));
  }

  async #count(key: string): Promise<boolean> {
    return (await this.#binding.limit({ key })).success;
  }
}
