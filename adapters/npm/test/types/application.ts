// An application in TypeScript, for any runtime. Without an error in the next line, `@ts-expect-error` is one itself.

import { capabilities, type CheckOptions, type ErrorEvent, type LimitOptions, type Options, type Policy, type Quota, RateLimiter as OnUpstash, Tidegate, TidegateError, type UpstashOptions, type Verdict } from "@tidegate/edge";
import { type CalendarOptions, calendarWindow } from "@tidegate/edge/calendar";
import { bindingWindow } from "@tidegate/edge/cloudflare-ratelimit";
import { balance, type BalanceOptions, type GrantOptions } from "@tidegate/edge/credits";
import { type DenoKv, type DenoKvOptions, Tidegate as OnDenoKv } from "@tidegate/edge/deno-kv";
import { Gate, type GateCheckOptions, jsonLines } from "@tidegate/edge/gate";
import { calendarWindows } from "@tidegate/edge/gate/calendar";
import { balances, type Credit, type Grantee } from "@tidegate/edge/gate/credits";
import { type GuardOptions, limit as hono } from "@tidegate/edge/hono";
import { allOf, type MemoryPolicy, RateLimiter, Tidegate as InMemory } from "@tidegate/edge/memory";
import { type AddressOptions, block, clientAddress, concurrency, fixedWindow, type LoadedPolicy, type LoadedQuota, penalty, type QuotaOptions, type Sender, slidingWindow, tokenBucket } from "@tidegate/edge/parts";
import { limit as netlify } from "@tidegate/edge/netlify";
import { type BlobsOptions, Tidegate as OnBlobs } from "@tidegate/edge/netlify-blobs";
import { limit as reactRouter } from "@tidegate/edge/react-router";
import { RateLimiter as LeanOnRedis, type RedisOptions, Tidegate as OnRedis } from "@tidegate/edge/redis";
import { createTable, type PostgresClient, type PostgresOptions, Tidegate as OnPostgres } from "@tidegate/edge/postgres";
import { type StoreOptions, type Swap, Tidegate as OnStore, type VersionedStore, type VersionedValue } from "@tidegate/edge/store";
import { limit as sveltekit } from "@tidegate/edge/sveltekit";
import { type Context, Hono } from "hono";

// A policy that is declared apart needs no `as const`, and may have one.
const policy = { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 } }, "10 / 10 s"] };
const fixed = { name: "api", quotas: ["100 burst, 10 / s", { slidingLog: { limit: 10, windowMs: 1000 }, by: "user" }] } as const;
const several = {
  name: "api",
  chargeDenied: true,
  quotas: [
    { tokenBucket: { capacity: 20, refill: 10, perMs: 1000 }, name: "burst" },
    { leakyBucket: { capacity: 20, refill: 10, perMs: 1000 }, by: "tenant" },
    { slidingWindow: { limit: 10, windowMs: 1000 } },
    { concurrency: { limit: 2, lifetimeMs: 60_000 } },
    { concurrency: { limit: 2, lifetimeMs: 60_000, returnsCost: true } },
    { penalty: { baseMs: 1, factor: 2, capMs: 8 } },
  ],
};
const quotas = [{ fixedWindow: { limit: 10, windowMs: 1000 } }];
quotas.push({ fixedWindow: { limit: 10, windowMs: 1000 } });
const typed: Policy = { name: "api", quotas: ["10 / s", ...quotas] };

const common = { platform: "direct", failMode: "open" } as const;
export const limiters = [
  new Tidegate({ ...common, url: undefined, token: undefined, policy }),
  Tidegate.fromEnv({ ...common, policy: fixed }, { KV_REST_API_URL: "https://example.com" }),
  new InMemory({ ...common, policy: several, denyCache: { holdMs: 1000 } }),
  new OnRedis({ ...common, policy: typed, client: { call: async (command, ...args) => [command, ...args] } }),
  new OnRedis({ ...common, policy, client: { sendCommand: async (args) => args }, clock: "caller" }),
  new OnBlobs({ ...common, policy: { name: "api", quotas }, blobs: {}, onVerdict: (verdict) => verdict.limited }),
];
const address: AddressOptions = { ipv6Prefix: 56 };
const sender: Sender = clientAddress("vercel", address);
const named: QuotaOptions = { name: "burst", by: "tenant" };
const bucket: LoadedQuota = tokenBucket(20, 10, "1 s", named);
const ofParts: LoadedPolicy = { name: "parts", quotas: [slidingWindow(10, "10 s"), bucket], chargeDenied: true };
export const lean = new RateLimiter({ policy: { ...ofParts, quotas: allOf(...ofParts.quotas) }, sender, maxKeys: 1_000, onVerdict: ({ allowed }) => allowed });
// A policy of one quota may be declared apart, too.
const ofOne = { name: "one", quotas: [slidingWindow(10, "10 s")] };
const ofAll: MemoryPolicy = { name: "all", quotas: allOf(slidingWindow(10, "10 s"), bucket, penalty("1 s", 2, "1 min")) };
export const eitherForm = [ofOne, ofAll].map((policy) => new RateLimiter({ policy }));
export const wholeOfAll = [new InMemory({ ...common, policy: ofAll }), OnUpstash.fromEnv({ policy: ofAll, failMode: "open" })];
// @ts-expect-error: several quotas are told by allOf.
export const severalInArray = () => new RateLimiter({ policy: { name: "parts", quotas: [slidingWindow(10, "10 s"), bucket] } });
// @ts-expect-error: also there, one only decides.
export const slotsOfAll = () => allOf(slidingWindow(10, "10 s"), concurrency(10, "30 s"));
// @ts-expect-error: no binding counts in memory.
export const windowOfBinding = () => new RateLimiter({ policy: { name: "parts", quotas: [bindingWindow(10, 60)] } });
export const decided: boolean = lean.decide({ "": "user:1", tenant: "one" }, { cost: 2 }).allowed;
export const mixed = new InMemory({ ...common, policy: { name: "mixed", quotas: ["10 / s", fixedWindow(10, "1 min"), penalty("1 s", 2, "1 min")] } });
export const onUpstash = OnUpstash.fromEnv({ policy: ofParts, sender, failMode: "open", deadlineMs: 100 });
export const roundTrips: number = capabilities.round_trips;
// @ts-expect-error: what a RateLimiter does, its type says.
export const ofLean = () => onUpstash.capabilities;
export const leanOnRedis = new LeanOnRedis({ policy: ofParts, failMode: "closed", client: { sendCommand: async (args) => args }, clock: "caller" });
export const held = new InMemory({ ...common, policy: { name: "held", quotas: [concurrency(10, "30 s", { returnsCost: true }), block("1 d"), fixedWindow(10, "1 min")] } });
// @ts-expect-error: a RateLimiter releases nothing.
export const slots = () => new RateLimiter({ policy: { name: "parts", quotas: [concurrency(10, "30 s")] } });
// @ts-expect-error: it blocks nothing by hand.
export const blocks = () => OnUpstash.fromEnv({ failMode: "open", policy: { name: "parts", quotas: [fixedWindow(10, "1 min"), block("1 d")] } });
// @ts-expect-error: it lends nothing.
export const lends = () => OnUpstash.fromEnv({ failMode: "open", policy: ofParts, leases: true });
// @ts-expect-error: a text is no quota of a RateLimiter.
export const texts = () => new RateLimiter({ policy: { name: "parts", quotas: ["10 / s"] } });
// @ts-expect-error: a RateLimiter settles nothing.
export const settled = () => lean.settle(lean.decide("user:1"), { cost: 1 });
// @ts-expect-error: so no check of it has an estimate.
export const estimated = (request: Request) => lean.check(request, { estimate: 10 });
export const honoOfParts = hono(lean, { check: () => ({ key: "user:1", cost: 2 }) });
export const onDenoKv = (kv: DenoKv) => new OnDenoKv({ ...common, policy, kv });
export const onPostgres = async (client: PostgresClient): Promise<OnPostgres> => {
  await createTable(client, { table: "limits" });
  return new OnPostgres({ ...common, policy, client, table: "limits", durable: true });
};
export class Rows implements VersionedStore {
  readonly name = "rows";
  readonly #rows = new Map<string, VersionedValue>();
  async read(name: string) {
    return this.#rows.get(name);
  }
  async create(name: string, bytes: Uint8Array, ttlMs: number): Promise<Swap> {
    return this.#rows.has(name) ? { written: false, present: this.#rows.get(name) } : this.update(name, bytes, undefined, ttlMs);
  }
  async update(name: string, bytes: Uint8Array, version: unknown, _ttlMs: number) {
    if (this.#rows.get(name)?.version !== version) return false;
    this.#rows.set(name, { bytes, version: {} });
    return true;
  }
  async delete(name: string) {
    this.#rows.delete(name);
  }
}
export const onStore = (options: Omit<StoreOptions, "store">) => new OnStore({ ...options, store: new Rows(), remember: true });
export type OfPostgres = PostgresOptions;

const make = (policy: Policy) => new InMemory({ ...common, policy });
make({ name: "api", quotas: [calendarWindow({ limit: 10, every: "month", zone: "Europe/Berlin" }), { ...calendarWindow({ limit: 10, every: "day" }), by: "user" }] });
// @ts-expect-error
calendarWindow({ limit: 10, every: "mounth" });
// @ts-expect-error
calendarWindow({ limit: 10 });
const credits: BalanceOptions = { max: 1_000_000, covers: true };
const prepaid = new InMemory({ ...common, policy: { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 } }, balance(credits), { ...balance(), by: "user" }] } });
const order: GrantOptions = { token: "order-1817", expires: new Date(0) };
export const fromBalance = async (): Promise<number> => (await prepaid.grant({ user: "user:42" }, 5_000, order)).fromBalance;
// @ts-expect-error A grant has a token.
export const grantedTwice = () => prepaid.grant("user:42", 5_000, {});
// @ts-expect-error
balance({ limit: 10 });
// @ts-expect-error
make({ name: "api", quotas: [{ fixedWindow: { limit: 10, windwMs: 1000 } }] });
// @ts-expect-error
make({ name: "api", quotas: [{ fixdWindow: { limit: 10, windowMs: 1000 } }] });
// @ts-expect-error
make({ name: "api", quotas: [{ fixedWindow: { limit: "10", windowMs: 1000 } }] });
// @ts-expect-error
make({ name: "api", quotas: [{ fixedWindow: { capacity: 20, refill: 10, perMs: 1000 } }] });
// @ts-expect-error
make({ name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 }, nmae: "burst" }] });
// @ts-expect-error
make({ name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 }, slidingLog: { limit: 10, windowMs: 1000 } }] });
// @ts-expect-error
make({ name: "api", quotas: [{ algorithm: "fixed_window", limit: 10, window_ms: 1000 }] });
// @ts-expect-error
make({ name: "api", quotas: [{ name: "burst" }] });
// @ts-expect-error
make({ name: "api", quotas: [10] });
// @ts-expect-error
make({ name: "api", quotas: "10 / s" });
// @ts-expect-error
make({ quotas: ["10 / s"] });
// @ts-expect-error
make({ name: "api", quotas: ["10 / s"], chargesDenied: true });
const wrong = { name: "api", quotas: [{ fixedWindow: { limit: 10, windwMs: 1000 } }] };
// @ts-expect-error
make(wrong);
const two = { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 }, penalty: { baseMs: 1, factor: 2, capMs: 8 } }] };
// @ts-expect-error
make(two);
// @ts-expect-error
new InMemory({ ...common, policy, failMode: "opened" });
// @ts-expect-error
new InMemory({ policy, platform: "direct" });
// @ts-expect-error
new OnRedis({ ...common, policy, client: {} });

/** What an application does with a limiter. */
export async function handle(tidegate: InMemory, request: Request): Promise<Response> {
  const options: CheckOptions = { keys: { user: "7" }, estimate: 2000 };
  const verdict: Verdict = await tidegate.check(request, async () => options);
  if (verdict.response) return verdict.response;
  const { allowed, retryAfterMs } = await tidegate.limit("user:7", { cost: 3 });
  const seconds: number = allowed || retryAfterMs === null ? 0 : retryAfterMs / 1000;
  await tidegate.settle(verdict, { cost: seconds }).catch((thrown: unknown) => thrown instanceof TidegateError && thrown.kind === "unknown_charge");
  // @ts-expect-error
  await tidegate.check(request, { costs: 1 });
  // @ts-expect-error
  await tidegate.limit("user:7", { peer: "192.0.2.1" });
  return verdict.onto(new Response(verdict.quotas.map(({ name, remaining }) => `${name} ${remaining}`).join()));
}
export const onError = ({ kind, message }: ErrorEvent) => console.warn(kind, message);

// With `exactOptionalPropertyTypes`, an optional field takes what a configuration may lack only if its type says `| undefined`.
declare const configured: { on: boolean; name: string | undefined; ms: number | undefined; known(request: Request): string | undefined };
const { on, name, ms, known } = configured;
export const fromConfiguration = new InMemory({
  ...common,
  policy: { name: "api", quotas: [{ fixedWindow: { limit: 10, windowMs: 1000 }, name, by: name }], chargeDenied: on ? true : undefined, groupBy: name },
  denyCache: on ? { holdMs: ms, capacity: ms } : undefined,
  deadlineMs: ms,
  identify: on ? (request) => ({ subject: known(request), apiKey: name }) : undefined,
  onIdentifyError: on ? "reject" : undefined,
  onError: on ? console.warn : undefined,
  body: on ? "problem" : undefined,
});
hono(fromConfiguration, { check: on ? () => ({ peer: name }) : undefined, denied: undefined, refund: undefined, peer: on ? () => name : undefined });

/** The optional fields that do not take `undefined`. */
type Exact<T> = T extends object ? { [Name in keyof T]-?: {} extends Pick<T, Name> ? (undefined extends Required<T>[Name] ? never : Name) : never }[keyof T] : never;
type None<T extends never> = T;
type Fields = CheckOptions | LimitOptions | Options | UpstashOptions | RedisOptions | BlobsOptions | DenoKvOptions | GuardOptions | CalendarOptions | Policy | Exclude<Options["denyCache"], boolean | undefined>;
type Name = Pick<Exclude<Quota, string>, "name" | "by">;
export type EachTakesUndefined = None<Exact<Fields | Name>>;
// @ts-expect-error
export type IsFound = None<Exact<{ name?: string }>>;

// The middlewares that need no declarations of their framework, and Hono's, whose declarations need no others.
type Env = { Bindings: { NAME: string }; Variables: { user: string } };
const tidegate = make(policy);
export const app = new Hono<Env>();
app.use(hono(tidegate));
app.use("/api/*", hono<Env>(tidegate, { check: (_, context) => ({ key: context.get("user") }), peer: (context) => context.env.NAME }));
app.use(hono(tidegate, { check: (_, context: Context<Env>) => (context.env.NAME ? null : undefined) }));
// @ts-expect-error
hono<Env>(tidegate, { check: (_, context) => ({ key: context.env.OTHER }) });
export const edge = netlify(tidegate, { refund: (response) => (response.status === 304 ? 1 : 0) });
export const node = reactRouter(tidegate, async (_: Request, tenant: string) => new Response(tenant), { check: (_, [tenant]) => ({ key: tenant }) });
// @ts-expect-error
reactRouter(tidegate, (_: Request, tenant: string) => new Response(tenant), { check: (_, [tenant]) => ({ cost: tenant }) });
export const kit = sveltekit(tidegate, { check: (request, event) => ({ key: request.url + event.getClientAddress() }) });

// A gate, and the middlewares with it.
export const gate = Gate.fromRules({ rules: [] }, {
  calendar: calendarWindows,
  credits: balances,
  platform: "vercel",
  stores: { default: (limit) => new Tidegate({ url: undefined, token: undefined, ...limit }), near: (limit) => new InMemory({ ...limit, denyCache: true }) },
  keys: { keys: [{ kty: "oct", k: "secret" }] },
  onEvent: [jsonLines(), ({ rule, outcome, remaining = 0 }) => console.log(rule, outcome, remaining.toFixed())],
});
const grantee: Grantee = { subject: "42" };
const credit: Credit = { limit: "api", to: grantee, units: 5, token: "order-1817", expires: new Date(), tier: undefined, keys: { tenant: "tenant:7" } };
export const granted: Promise<Verdict> = gate.grant(credit);
// @ts-expect-error
gate.grant({ ...credit, to: { name: "42" } });
// @ts-expect-error
gate.grant({ limit: "api", to: { apiKey: "secret" }, units: 5 });
export async function decide(request: Request): Promise<Response> {
  const options: GateCheckOptions = { tier: "pro", keys: { tenant: "tenant:7" }, peer: undefined };
  const verdict: Verdict = await gate.check(request, options);
  return verdict.response ?? verdict.onto(new Response(`${verdict.rule} ${verdict.outcome === "unlimited"}`));
}
export const gated = [
  hono(gate, { check: (_, context) => ({ tier: context.req.path }), denied: ({ outcome }) => new Response(outcome) }),
  hono<Env, Gate>(gate, { check: (_, context) => ({ subject: context.get("user") }) }),
  netlify(gate, { check: () => ({ botScore: 3 }) }),
  netlify(async () => gate),
];
// @ts-expect-error
netlify(gate, { check: () => ({ idempotency: { token: "a", ttlMs: 1 } }) });
// @ts-expect-error
gate.check(new Request("https://example.com"), { teir: "pro" });
// @ts-expect-error
Gate.fromRules({}, { platform: "vercel", stores: { default: () => tidegate, other: 7 } });
