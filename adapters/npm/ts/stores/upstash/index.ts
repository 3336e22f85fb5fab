import { CachingLimiter } from "../../caching_limiter.js";
import { EXACT, lends } from "../../core/capabilities.js";
import { Fields } from "../../fields.js";
import { type LeaseOptions, lending } from "../../leases.js";
import { StoreCore } from "../../limiter_core.js";
import { COMMON, common, missing, type Options } from "../../options.js";
import { checkedDatabase } from "./database.js";
import { Rest } from "./rest.js";

export * from "../../store_exports.js";
export type { LeaseOptions, Leases } from "../../leases.js";

/** The options of a limiter on Upstash. */
export interface UpstashOptions extends Options, LeaseOptions {
  /** The database's `UPSTASH_REDIS_REST_URL`. If it is missing, each check is a 503 and `assertReady` throws, so that a build needs no secrets. */
  url: string | undefined;
  /** The database's `UPSTASH_REDIS_REST_TOKEN`. If it is missing, each check is a 503 and `assertReady` throws. */
  token: string | undefined;
  /** Allow an `http://` URL to a host other than this machine. It sends the token in clear text. Default: false. */
  allowInsecureHttp?: boolean | undefined;
  /** Whose clock decides. Default: `server`, the database's, which is one clock for all hosts. */
  clock?: "caller" | "server" | undefined;
  /** Whether the script locks only its own keys. Default: true on `*.upstash.io`, false elsewhere. */
  keyLocking?: boolean | undefined;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number | undefined;
}

/** Environment variables by name. */
export type Environment = Readonly<Record<string, unknown>>;

declare const process: { env: Environment } | undefined;

/**
 * A limiter on Upstash. It is exact at any concurrency, and a decision is one HTTP request.
 *
 *     const tidegate = Tidegate.fromEnv({ platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *     const verdict = await tidegate.check(request);
 *     if (verdict.response) return verdict.response;
 */
export class Tidegate extends CachingLimiter {
  constructor(options: UpstashOptions) {
    const ready = checked(options);
    super(ready, lends(EXACT, ready), StoreCore, (core) => new Rest(core, ready));
  }

  /**
   * A limiter with the URL and the token of `UPSTASH_REDIS_REST_URL` and `UPSTASH_REDIS_REST_TOKEN`, or of `KV_REST_API_URL` and
   * `KV_REST_API_TOKEN`, which Vercel sets. On Cloudflare without `nodejs_compat`, pass the Worker's `env`.
   */
  static fromEnv(options: Omit<UpstashOptions, "url" | "token">, env?: Environment): Tidegate {
    // Builders replace `process.env.NAME` by its value, and only if it is written like this.
    const has = !env && typeof process !== "undefined";
    const url = env ? (env["UPSTASH_REDIS_REST_URL"] ?? env["KV_REST_API_URL"]) : has ? (process.env["UPSTASH_REDIS_REST_URL"] ?? process.env["KV_REST_API_URL"]) : undefined;
    const token = env
      ? (env["UPSTASH_REDIS_REST_TOKEN"] ?? env["KV_REST_API_TOKEN"])
      : has
        ? (process.env["UPSTASH_REDIS_REST_TOKEN"] ?? process.env["KV_REST_API_TOKEN"])
        : undefined;
    return new this({ ...options, url: url as string | undefined, token: token as string | undefined });
  }
}

/** Checks the options and fills in the defaults. */
function checked(options: UpstashOptions) {
  const fields = new Fields(options, "", [...COMMON, "url", "token", "allowInsecureHttp", "clock", "keyLocking", "minTtlMs", "leases", "waitUntil"]);
  const right = (name: string) => `the database's UPSTASH_REDIS_REST_${name}`;
  const [url, token] = [fields.text("url", right("URL")), fields.text("token", right("TOKEN"))];
  const ready = common(fields, 250);
  const allowInsecureHttp = fields.flag("allowInsecureHttp") ?? false;
  const absent = !url ? "URL" : !token ? "TOKEN" : undefined;
  const place = absent ? undefined : checkedDatabase(url!, token!, allowInsecureHttp);
  return {
    ...ready,
    ...lending(fields),
    place,
    broken: absent && missing(absent.toLowerCase(), `set ${right(absent)}`),
    isTimeless: fields.choice("clock", ["caller", "server"]) !== "caller",
    keyLocking: fields.flag("keyLocking") ?? place?.isUpstash ?? false,
    minTtlMs: fields.whole("minTtlMs") ?? 0,
  };
}
