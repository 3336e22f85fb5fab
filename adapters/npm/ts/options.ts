import { type ErrorKind, invalid } from "./error.js";
import { Fields } from "./fields.js";

/**
 * A limit: an algorithm with its numbers, the name that response fields show, and `by`, the dimension by whose key it counts.
 * A quota without `by` counts by the request's sender.
 */
export type Quota = { name?: string; by?: string } & (
  | { algorithm: "fixed_window" | "sliding_window" | "sliding_log"; limit: number; window_ms: number }
  | { algorithm: "token_bucket" | "leaky_bucket"; capacity: number; refill: number; per_ms: number }
  /** The most requests in flight. Each holds a slot until it is released, or its lifetime is over. */
  | { algorithm: "concurrency"; limit: number; lifetime_ms: number; returns_cost?: boolean }
  /** Blocks a key that another quota has denied: first for the base, then `factor` times longer each time, up to the cap. */
  | { algorithm: "penalty"; base_ms: number; factor: number; cap_ms: number }
);

/** One to eight quotas that are decided in one step. If one denies a request, none is charged. */
export interface Policy {
  name: string;
  quotas: Quota[];
  /** Whether denied requests are charged, too, so that a client which keeps retrying stays denied. Default: false. */
  charge_denied?: boolean;
  /** The dimension whose key selects where the others are counted, for stores that keep each policy in one place. */
  group_by?: string;
}

/** The platform in front of the app. It determines where the client's address comes from. */
export type Platform = "cloudflare" | "vercel" | "netlify" | "fastly" | "spin" | "direct";

/** Who sent a request, as far as the app has verified it. */
export interface Identity {
  /** The subject (`sub`) of a token whose signature was verified. */
  subject?: string | undefined;
  /** A valid API key. Only its hash is stored. */
  apiKey?: string | undefined;
}

/** A method of the limiter. */
export type Operation = "check" | "peek" | "settle" | "release" | "refund" | "reset" | "identify";

/** A failure, as `onError` gets it. It contains neither tokens nor keys. */
export interface ErrorEvent {
  /** The method that failed. */
  operation: Operation;
  /** What kind of error it is. `unavailable` and `timeout` are failures of the store. */
  kind: ErrorKind;
  message: string;
  /** Whether the request was let through uncounted because of this failure. */
  failedOpen: boolean;
}

/** The options of every limiter. */
export interface Options {
  policy: Policy;
  platform: Platform;
  /** What happens to a request when the store fails (`unavailable` or `timeout`): `open` admits it, `closed` rejects it. */
  failMode: "open" | "closed";
  /** Identifies the sender of a request. If it returns undefined, the client's address counts. The deadline does not cover it. */
  identify?: (request: Request) => Identity | undefined | Promise<Identity | undefined>;
  /** What happens if `identify` throws: count the request by the client's `address`, or `reject` it. Default: `address`. */
  onIdentifyError?: "address" | "reject";
  /** Called for every failure, for your log or metrics. It is not awaited, and what it throws is ignored. */
  onError?: (event: ErrorEvent) => unknown;
  /** Denies a key that was denied before without asking the store, until its wait is over. Default: off. */
  denyCache?: boolean | { holdMs?: number; capacity?: number };
  /** The longest that a decision may take, in milliseconds. */
  deadlineMs?: number;
  /** How many leading bits of an IPv6 address identify a client, 48 to 128. Default: 64. */
  ipv6Prefix?: number;
  /** On `spin`, read the address from `true-client-ip`. Only safe if every request comes through Akamai. */
  trustTrueClientIp?: boolean;
  /** The format of a denial's body. Default: `json`. */
  body?: "json" | "problem";
}

/** The options of a limiter on Upstash. */
export interface UpstashOptions extends Options {
  /** The database's `UPSTASH_REDIS_REST_URL`. */
  url: string;
  /** The database's `UPSTASH_REDIS_REST_TOKEN`. */
  token: string;
  /** Allow an `http://` URL to a host other than this machine. It sends the token in clear text. Default: false. */
  allowInsecureHttp?: boolean;
  /** Whose clock decides. Default: `server`, the database's, which is one clock for all hosts. */
  clock?: "caller" | "server";
  /** Whether the script locks only its own keys. Default: true on `*.upstash.io`, false elsewhere. */
  keyLocking?: boolean;
  /** Keeps every state for at least this long. Only for tests whose time stands still. */
  minTtlMs?: number;
}

/** The options of a limiter on Netlify Blobs. */
export interface BlobsOptions extends Options {
  /** `getStore({ name: "tidegate", consistency: "strong" })` of `@netlify/blobs`. */
  blobs: object;
  /** How the site reads. Default: `strong`. */
  consistency?: "strong" | "eventual";
}

const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty"] as const;
const [WINDOW, BUCKET] = [["limit", "window_ms"], ["capacity", "per_ms", "refill"]] as const;
/** The numbers of each algorithm, in the order in which the WebAssembly gets them. */
const NUMBERS = [WINDOW, WINDOW, WINDOW, BUCKET, BUCKET, ["limit", "lifetime_ms"], ["cap_ms", "base_ms", "factor"]] as const;
const RETURNS_COST = "returns_cost";
const PLATFORMS = ["cloudflare", "vercel", "netlify", "fastly", "spin", "direct"] as const;
const COMMON = [
  ...["policy", "platform", "failMode", "identify", "onIdentifyError", "onError"],
  ...["denyCache", "deadlineMs", "ipv6Prefix", "trustTrueClientIp", "body"],
];
const NAME = "a text of 1 to 32 of the characters a-z A-Z 0-9 - _ .";
const MODES = `"open" to let requests through while the store is down, or "closed" to refuse them`;

/** Checks Upstash's options and fills in the defaults, for the WebAssembly. */
export function upstash(options: UpstashOptions) {
  const fields = new Fields(options, "", [...COMMON, "url", "token", "allowInsecureHttp", "clock", "keyLocking", "minTtlMs"]);
  const [url, token] = ["the database's UPSTASH_REDIS_REST_URL", "the database's UPSTASH_REDIS_REST_TOKEN"];
  return {
    ...common(fields, 250),
    url: fields.need("url", fields.text("url", url), url),
    token: fields.need("token", fields.text("token", token), token),
    allowInsecureHttp: fields.flag("allowInsecureHttp") ?? false,
    serverClock: fields.choice("clock", ["caller", "server"]) !== "caller",
    keyLocking: fields.flag("keyLocking"),
    minTtlMs: fields.whole("minTtlMs") ?? 0,
  };
}

/** Checks Netlify Blobs' options and fills in the defaults, for the WebAssembly. */
export function netlifyBlobs(options: BlobsOptions) {
  const fields = new Fields(options, "", [...COMMON, "blobs", "consistency"]);
  const right = `getStore({ name: "tidegate", consistency: "strong" }) of @netlify/blobs`;
  const blobs = fields.need("blobs", fields.get("blobs"), right) as Record<string, unknown>;
  if (["getWithMetadata", "set", "delete"].some((name) => typeof blobs[name] !== "function")) {
    throw invalid("blobs", `not a store; write ${right}`);
  }
  return { ...common(fields, 2_000), blobs, consistency: fields.choice("consistency", ["strong", "eventual"]) ?? "strong" };
}

function common(fields: Fields, deadlineMs: number) {
  const failMode = fields.need("failMode", fields.choice("failMode", ["open", "closed"]), MODES);
  return {
    ...policy(fields.need("policy", fields.get("policy"), "{ name, quotas }")),
    ...denyCache(fields.get("denyCache")),
    platform: fields.need("platform", fields.choice("platform", PLATFORMS), PLATFORMS.join(" or ")),
    failsOpen: failMode === "open",
    identify: fields.call("identify", "(request) => ({ subject, apiKey })") as Options["identify"],
    rejectsUnidentified: fields.choice("onIdentifyError", ["address", "reject"]) === "reject",
    onError: fields.call("onError", "(event) => console.error(event)") as Options["onError"],
    deadlineMs: fields.whole("deadlineMs") ?? deadlineMs,
    ipv6Prefix: fields.whole("ipv6Prefix") ?? 64,
    trustTrueClientIp: fields.flag("trustTrueClientIp") ?? false,
    problem: fields.choice("body", ["json", "problem"]) === "problem",
  };
}

function policy(value: unknown) {
  const fields = new Fields(value, "policy", ["name", "quotas", "charge_denied", "group_by"]);
  const right = `[{ algorithm: "token_bucket", capacity: 20, refill: 10, per_ms: 1000 }]`;
  const quotas = fields.need("quotas", fields.get("quotas"), right);
  if (!Array.isArray(quotas)) throw invalid("policy.quotas", `not an array; write ${right}`);
  const checked = quotas.map((value, place) => quota(value, `policy.quotas[${place}]`));
  return {
    name: fields.need("name", fields.text("name", NAME), NAME),
    chargeDenied: fields.flag("charge_denied") ?? false,
    groupBy: fields.text("group_by", NAME),
    quotas: checked,
    holdsSlots: checked.some(({ isConcurrency }) => isConcurrency),
  };
}

function quota(value: unknown, path: string) {
  const common = ["algorithm", "name", "by"];
  let fields = new Fields(value, path, [...common, ...new Set(NUMBERS.flat()), RETURNS_COST]);
  const algorithm = ALGORITHMS.indexOf(fields.need("algorithm", fields.choice("algorithm", ALGORITHMS), ALGORITHMS.join(" or ")));
  const isConcurrency = ALGORITHMS[algorithm] === "concurrency";
  const [amount, span, refill] = NUMBERS[algorithm]!;
  fields = new Fields(value, path, [...common, ...NUMBERS[algorithm]!, ...(isConcurrency ? [RETURNS_COST] : [])]);
  const number = (name: string) => fields.need(name, fields.whole(name), "a whole number");
  return {
    algorithm,
    isConcurrency,
    name: fields.text("name", NAME),
    by: fields.text("by", NAME),
    amount: number(amount),
    span: number(span),
    refill: refill ? number(refill) : Number(isConcurrency && (fields.flag(RETURNS_COST) ?? false)),
  };
}

/** Off by default. If it is on, the defaults are those of core's `DenyCache`. */
function denyCache(value: unknown) {
  const on = { holdMs: 10_000, capacity: 1_024 };
  if (value === undefined || value === false) return { ...on, holdMs: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "denyCache", ["holdMs", "capacity"]);
  return { holdMs: fields.whole("holdMs") ?? on.holdMs, capacity: fields.whole("capacity") ?? on.capacity };
}
