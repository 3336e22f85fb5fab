// The scripts are first in a bundle: see `bundle.mjs`.
import { batchScript } from "../redis/built.js";
import { CachingLimiter } from "../../caching_limiter.js";
import { calledStore } from "../../called_store.js";
import { Calls } from "../../calls.js";
import { type Capabilities, EXACT, lends } from "../../core/capabilities.js";
import { choice, Fields } from "../../fields.js";
import { type LeaseOptions, lending } from "../../leases.js";
import { StoreCore } from "../../limiter_core.js";
import { COMMON, common, missing, type Options } from "../../options.js";
import { CALLED_PARTS, calledPartsOf, type CalledPartsOptions, loadedRule, PartsLimiter } from "../../parts_limiter.js";
import { LOANS } from "../redis/loans.js";
import { Batches } from "./batches.js";
import { checkedDatabase } from "./database.js";
import { databaseIn, type Environment } from "./environment.js";
import type { Post } from "./requests.js";
import { Rest } from "./rest.js";

export * from "../../store_exports.js";

/** What the store supports, and how exact it is: `Tidegate.capabilities` without leases, for who uses a `RateLimiter`. */
export const capabilities: Capabilities = EXACT;
export type { LeaseOptions, Leases } from "../../leases.js";
export type { Environment } from "./environment.js";

/** The options of a database. */
interface DatabaseOptions {
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

/** The options of a limiter on Upstash. */
export interface UpstashOptions extends Options, LeaseOptions, DatabaseOptions {}

/** The options of a `RateLimiter` on Upstash. */
export interface RateLimiterOptions extends CalledPartsOptions, DatabaseOptions {}

const DATABASE = ["url", "token", "allowInsecureHttp", "clock", "keyLocking", "minTtlMs"];

/** How long a decision may take, unless the options say it. */
const DEADLINE_MS = 250;

/**
 * A limiter on Upstash. It is exact at any concurrency, and a decision is one HTTP request.
 *
 *     const tidegate = Tidegate.fromEnv({ platform: "vercel", failMode: "open", policy: { name: "api", quotas: ["10 / 10 s"] } });
 *     const verdict = await tidegate.check(request);
 *     if (verdict.response) return verdict.response;
 */
export class Tidegate extends CachingLimiter {
  constructor(options: UpstashOptions) {
    const fields = new Fields(options, "", [...COMMON, ...DATABASE, "leases", "waitUntil"]);
    const all = { ...database(fields), ...common(fields, DEADLINE_MS) };
    // Answers contain the states, so that long ones of some clients could make the answer to several too long or too late for all.
    const batches = all.statesAreLong ? undefined : (post: Post) => new Batches(post, () => batchScript(all.keyLocking));
    const ready = { ...all, ...lending(fields, all.deadlineMs), loans: LOANS, batches };
    super(ready, lends(EXACT, ready), StoreCore, (core) => new Rest(core, ready));
  }

  /**
   * A limiter with the URL and the token of `UPSTASH_REDIS_REST_URL` and `UPSTASH_REDIS_REST_TOKEN`, or of `KV_REST_API_URL` and
   * `KV_REST_API_TOKEN`, which Vercel sets. On Cloudflare without `nodejs_compat`, pass the Worker's `env`.
   */
  static fromEnv(options: Omit<UpstashOptions, "url" | "token">, env?: Environment): Tidegate {
    return new this({ ...options, ...databaseIn(env) });
  }
}

/**
 * The same limiter in two thirds of the code, for an application that bundles it: its quotas are functions of `@tidegate/edge/parts`, and a
 * bundler leaves out all others. It decides, and does nothing else: it has no leases, and sends each decision in a request of its own. Both
 * count together, if their policies are the same.
 *
 *     const limiter = RateLimiter.fromEnv({ failMode: "open", policy: { name: "api", quotas: [slidingWindow(100, "1 min")] } });
 *     const { allowed } = await limiter.limit("user:42");
 */
export class RateLimiter extends PartsLimiter {
  constructor(options: RateLimiterOptions) {
    const fields = new Fields(options, "", [...CALLED_PARTS, ...DATABASE]);
    const ready = { ...database(fields), ...calledPartsOf(fields, DEADLINE_MS) };
    super(ready, () => {
      const core = new StoreCore(ready, undefined, loadedRule);
      return calledStore(ready, core, new Calls(new Rest(core, ready), ready));
    });
  }

  /** As of `Tidegate`. */
  static fromEnv(options: Omit<RateLimiterOptions, "url" | "token">, env?: Environment): RateLimiter {
    return new this({ ...options, ...databaseIn(env) });
  }
}

/** Checks the options of a database and fills in the defaults. */
function database(fields: Fields) {
  const right = (name: string) => `the database's UPSTASH_REDIS_REST_${name}`;
  const [url, token] = [fields.text("url", right("URL")), fields.text("token", right("TOKEN"))];
  const allowInsecureHttp = fields.flag("allowInsecureHttp") ?? false;
  const absent = !url ? "URL" : !token ? "TOKEN" : undefined;
  const place = absent ? undefined : checkedDatabase(url!, token!, allowInsecureHttp);
  return {
    place,
    broken: absent && missing(absent.toLowerCase(), `set ${right(absent)}`),
    isTimeless: fields.read("clock", choice(["caller", "server"])) !== "caller",
    keyLocking: fields.flag("keyLocking") ?? place?.isUpstash ?? false,
    minTtlMs: fields.whole("minTtlMs") ?? 0,
  };
}
