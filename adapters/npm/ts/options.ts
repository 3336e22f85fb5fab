import { invalid } from "./error.js";
import { Fields } from "./fields.js";

/** A limit: an algorithm with its numbers, and the name that response fields show. */
export type Quota = { name?: string } & (
  | { algorithm: "fixed_window" | "sliding_window" | "sliding_log"; limit: number; window_ms: number }
  | { algorithm: "token_bucket" | "leaky_bucket"; capacity: number; refill: number; per_ms: number }
);

/** One to eight quotas that are decided together, all or nothing: if one denies, none is charged. */
export interface Policy {
  name: string;
  quotas: Quota[];
  /** Charge denied requests, too: who goes on hammering stays out. Off unless set. */
  charge_denied?: boolean;
}

/** What is in front of the app, which alone knows a client's address. */
export type Platform = "cloudflare" | "vercel" | "netlify" | "fastly" | "spin" | "direct";

/** Who sent a request, as far as you have verified it. */
export interface Identity {
  /** The subject (`sub`) of a token whose signature was verified. */
  subject?: string | undefined;
  /** An API key that was found valid; only its hash is kept. */
  apiKey?: string | undefined;
}

/** What every limiter takes. */
export interface Options {
  policy: Policy;
  platform: Platform;
  /** What becomes of a request that cannot be decided on: `open` lets it pass, `closed` refuses it. */
  failMode: "open" | "closed";
  /** Who sent a request. Without it, or where it names nobody, the client's address counts. */
  identify?: (request: Request) => Identity | undefined | Promise<Identity | undefined>;
  /** Deny a key that was denied again without asking, until its wait is over. Off unless set. */
  denyCache?: boolean | { holdMs?: number; capacity?: number };
  /** How long a decision may take, all in all. */
  deadlineMs?: number;
  /** How many leading bits of an IPv6 address tell one client from another: 48 to 128, 64 unless set. */
  ipv6Prefix?: number;
  /** On `spin`, take the address from `true-client-ip`: only where every request comes through Akamai. */
  trustTrueClientIp?: boolean;
  /** The form of a denial's body: small JSON unless set. */
  body?: "json" | "problem";
}

/** What a limiter on Upstash takes. */
export interface UpstashOptions extends Options {
  /** The database's `UPSTASH_REDIS_REST_URL`. */
  url: string;
  /** The database's `UPSTASH_REDIS_REST_TOKEN`. */
  token: string;
  /** Whose clock decides: the host's unless set. */
  clock?: "caller" | "server";
  /** Whether scripts lock their own keys only; unless set, they do on `*.upstash.io`. */
  keyLocking?: boolean;
  /** Keep every state for at least this long: for tests whose time stands still. */
  minTtlMs?: number;
}

/** What a limiter on Netlify Blobs takes. */
export interface BlobsOptions extends Options {
  /** `getStore({ name: "tidegate", consistency: "strong" })` of `@netlify/blobs`. */
  blobs: object;
  /** How the site reads: `strong` unless set. */
  consistency?: "strong" | "eventual";
}

const WINDOWS = ["fixed_window", "sliding_window", "sliding_log"] as const;
const ALGORITHMS = [...WINDOWS, "token_bucket", "leaky_bucket"] as const;
const PLATFORMS = ["cloudflare", "vercel", "netlify", "fastly", "spin", "direct"] as const;
const COMMON = ["policy", "platform", "failMode", "identify", "denyCache", "deadlineMs", "ipv6Prefix", "trustTrueClientIp", "body"];
const NAME = "a text of 1 to 32 of the characters a-z A-Z 0-9 - _ .";
const MODES = `"open" to let requests pass that cannot be decided on, or "closed" to refuse them`;

/** Upstash's options, as the WebAssembly takes them. */
export function upstash(options: UpstashOptions) {
  const fields = new Fields(options, "", [...COMMON, "url", "token", "clock", "keyLocking", "minTtlMs"]);
  const [url, token] = ["the database's UPSTASH_REDIS_REST_URL", "the database's UPSTASH_REDIS_REST_TOKEN"];
  return {
    ...common(fields, 250),
    url: fields.need("url", fields.text("url", url), url),
    token: fields.need("token", fields.text("token", token), token),
    serverClock: fields.choice("clock", ["caller", "server"]) === "server",
    keyLocking: fields.flag("keyLocking"),
    minTtlMs: fields.whole("minTtlMs") ?? 0,
  };
}

/** Netlify Blobs' options, as the WebAssembly takes them. */
export function netlifyBlobs(options: BlobsOptions) {
  const fields = new Fields(options, "", [...COMMON, "blobs", "consistency"]);
  const right = `getStore({ name: "tidegate", consistency: "strong" }) of @netlify/blobs`;
  const blobs = fields.need("blobs", fields.get("blobs"), right) as Record<string, unknown>;
  if (["getWithMetadata", "set", "delete"].some((name) => typeof blobs[name] !== "function")) {
    throw invalid("blobs", `no store; write ${right}`);
  }
  return { ...common(fields, 2_000), blobs, consistency: fields.choice("consistency", ["strong", "eventual"]) ?? "strong" };
}

function common(fields: Fields, deadlineMs: number) {
  const failMode = fields.need("failMode", fields.choice("failMode", ["open", "closed"]), MODES);
  const identify = fields.get("identify");
  if (identify !== undefined && typeof identify !== "function") {
    throw invalid("identify", "no function; write (request) => ({ subject, apiKey })");
  }
  return {
    ...policy(fields.need("policy", fields.get("policy"), "{ name, quotas }")),
    ...denyCache(fields.get("denyCache")),
    platform: fields.need("platform", fields.choice("platform", PLATFORMS), PLATFORMS.join(" or ")),
    failsOpen: failMode === "open",
    identify: identify as Options["identify"],
    deadlineMs: fields.whole("deadlineMs") ?? deadlineMs,
    ipv6Prefix: fields.whole("ipv6Prefix") ?? 64,
    trustTrueClientIp: fields.flag("trustTrueClientIp") ?? false,
    problem: fields.choice("body", ["json", "problem"]) === "problem",
  };
}

function policy(value: unknown) {
  const fields = new Fields(value, "policy", ["name", "quotas", "charge_denied"]);
  const right = `[{ algorithm: "token_bucket", capacity: 20, refill: 10, per_ms: 1000 }]`;
  const quotas = fields.need("quotas", fields.get("quotas"), right);
  if (!Array.isArray(quotas)) throw invalid("policy.quotas", `no array; write ${right}`);
  return {
    name: fields.need("name", fields.text("name", NAME), NAME),
    chargeDenied: fields.flag("charge_denied") ?? false,
    quotas: quotas.map((value, place) => quota(value, `policy.quotas[${place}]`)),
  };
}

function quota(value: unknown, path: string) {
  const [window, bucket] = [["limit", "window_ms"], ["capacity", "refill", "per_ms"]];
  let fields = new Fields(value, path, ["algorithm", "name", ...window, ...bucket]);
  const algorithm = fields.need("algorithm", fields.choice("algorithm", ALGORITHMS), ALGORITHMS.join(" or "));
  const isWindow = (WINDOWS as readonly string[]).includes(algorithm);
  fields = new Fields(value, path, ["algorithm", "name", ...(isWindow ? window : bucket)]);
  const number = (name: string) => fields.need(name, fields.whole(name), "a whole number");
  return {
    algorithm: ALGORITHMS.indexOf(algorithm),
    name: fields.text("name", NAME),
    amount: number(isWindow ? "limit" : "capacity"),
    span: number(isWindow ? "window_ms" : "per_ms"),
    refill: isWindow ? 0 : number("refill"),
  };
}

/** Off unless asked for; then as core's `DenyCache` unless set. */
function denyCache(value: unknown) {
  const on = { holdMs: 10_000, capacity: 1_024 };
  if (value === undefined || value === false) return { ...on, holdMs: 0 };
  if (value === true) return on;
  const fields = new Fields(value, "denyCache", ["holdMs", "capacity"]);
  return { holdMs: fields.whole("holdMs") ?? on.holdMs, capacity: fields.whole("capacity") ?? on.capacity };
}
