import { waitUntil } from "cloudflare:workers";
import { CachingLimiter } from "../../caching_limiter.js";
import { invalid } from "../../error.js";
import { Fields } from "../../fields.js";
import { Core } from "../../limiter_core.js";
import { COMMON, common, missing, type Options, type Platform } from "../../options.js";
import { Counts, type Kv, SHARED } from "./counts.js";

export * from "../../store_exports.js";
export type { Kv } from "./counts.js";

/** The options of a limiter on Workers KV. */
export interface KvOptions extends Omit<Options, "platform"> {
  /** `env.COUNTS`, the binding of the namespace. If it is missing, the first check reports it. */
  namespace: Kv | undefined;
  /** Default: `cloudflare`. */
  platform?: Platform | undefined;
  /** For how long a location caches what it has read, in seconds. At least 30, the default. */
  cacheTtlS?: number | undefined;
  /** Keeps work alive after the response. Default: `waitUntil` of `cloudflare:workers`. */
  waitUntil?: ((work: Promise<unknown>) => void) | undefined;
  /** How long to wait after a response until the counts may be written again. Default: 25,000. */
  lingerMs?: number | undefined;
}

/**
 * A limiter on Workers KV. Each isolate counts for itself, exactly, and learns from Workers KV what others have counted, usually
 * within a minute. So in each interval at most `limit x isolates` is admitted. A decision reads a key at most once a second, and
 * the counts are written after the response, also once a second.
 *
 *     import { env } from "cloudflare:workers";
 *     const tidegate = new Tidegate({ namespace: env.COUNTS, failMode: "open", policy: { name: "api", quotas: ["100 burst, 10 / s"] } });
 */
export class Tidegate extends CachingLimiter {
  readonly #waitUntil: (work: Promise<unknown>) => void;
  readonly #lingerMs: number;
  readonly #counts: Counts;

  constructor(options: KvOptions) {
    const fields = new Fields(options, "", [...COMMON, "namespace", "cacheTtlS", "waitUntil", "lingerMs"]);
    const namespace = fields.get("namespace") as Kv | undefined;
    const right = `"kv_namespaces": [{ "binding": "COUNTS", "id": "…" }]`;
    if (namespace !== undefined && (["get", "put", "delete"] as const).some((name) => typeof namespace[name] !== "function")) {
      throw invalid("namespace", `not a namespace of Workers KV; in wrangler.jsonc, write ${right}`);
    }
    const ready = {
      ...common(fields, 250, "cloudflare"),
      apart: true,
      broken: namespace === undefined ? missing("namespace", `bind one: in wrangler.jsonc, write ${right}`) : undefined,
    };
    const cacheTtl = Math.max(fields.whole("cacheTtlS") ?? 0, 30);
    let counts: Counts;
    super(ready, SHARED, Core, (core) => {
      counts = new Counts(core, namespace!, cacheTtl, (now) => this.decided(now));
      return counts;
    });
    this.#counts = counts!;
    this.#waitUntil = (fields.call("waitUntil", "(work) => context.waitUntil(work)") as KvOptions["waitUntil"]) ?? waitUntil;
    this.#lingerMs = fields.whole("lingerMs") ?? 25_000;
  }

  /** Called after each decision that was made at `now`. */
  protected decided(now: number): void {
    this.#waitUntil(this.write(now).catch(() => undefined));
  }

  /** Writes what was counted until `now`, until everything is written or another request does so. */
  protected async write(now: number): Promise<void> {
    for (let waited = 0; ; ) {
      const due = await this.#counts.flush(now + waited);
      const wait = Math.max(due, 1);
      if (due < 0 || waited + wait > this.#lingerMs) return;
      await new Promise((resolve) => setTimeout(resolve, wait));
      waited += wait;
    }
  }
}
