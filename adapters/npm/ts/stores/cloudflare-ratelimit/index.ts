import * as glue from "#rate-limit/glue";
import module from "#rate-limit/module";
import { type Answer, Calls, NOTHING } from "../../calls.js";
import { start } from "../../engine.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Limiter } from "../../limiter.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";

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
    super(engine, ready, (gate) => new Calls(gate, (wanted) => ask(binding!, wanted), ready));
  }
}

async function ask(binding: Binding, wanted: string): Promise<Answer> {
  const [key] = JSON.parse(wanted) as [string];
  const { success } = await binding.limit({ key });
  return [success ? 200 : 429, NOTHING];
}
