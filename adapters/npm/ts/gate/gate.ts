import { type ErrorKind, invalid, TidegateError } from "../error.js";
import { Fields, only, shown, whole } from "../fields.js";
import type { Platform } from "../options.js";
import type { Keys } from "../verdict.js";
import { eventOf, type Sink, type WrittenEvent } from "./events.js";
import type { RulesCaller, RulesEngine, RulesGate } from "./glue.js";
import { type Store, Stores, type Written } from "./stores.js";
import { type TokenKeys, Tokens } from "./tokens.js";
import { GateVerdict, type Told } from "./verdict.js";

export { type ErrorKind, TidegateError } from "../error.js";
export type { Platform } from "../options.js";
export type { Keys, QuotaStatus } from "../verdict.js";
export { type AnalyticsEngine, analyticsEngine, type Event, jsonLines, type Meter, openTelemetry, type Sink } from "./events.js";
export type { Limit, Store } from "./stores.js";
export type { FindKey, Jwk, JwkSet, TokenKeys } from "./tokens.js";
export { type GateCharge, GateVerdict, type Outcome } from "./verdict.js";

/** A failure, as `onError` gets it. It contains neither tokens nor keys. */
export interface GateErrorEvent {
  kind: ErrorKind;
  message: string;
  /** The name of the rule, if it is known. */
  rule: string | undefined;
  /** Whether the request was let through uncounted because of this failure. */
  failedOpen: boolean;
}

/** How often a proposed limit would have decided differently. */
export interface ShadowCounts {
  store: string;
  /** The limit in whose place it is tried. */
  limit: string;
  bothAdmit: number;
  bothDeny: number;
  onlyProposalDenies: number;
  onlyCurrentDenies: number;
  /** Checks of the proposal that failed. */
  failed: number;
}

/** The options of a gate. */
export interface GateOptions {
  /** The platform in front of the app. It determines where the client's address comes from. */
  platform: Platform;
  /**
   * How to make a limiter on each store, by the names in the rules: `{ default: (limit) => new Tidegate({ url, token, ...limit }) }`.
   * A rule without a store uses the first.
   */
  stores: Readonly<Record<string, Store>>;
  /** The name of the rules file, which begins each message about it. Default: `rules.json`, or `rules.toml` for `@tidegate/edge/gate/toml`. */
  name?: string;
  /** The keys that verify the tokens of the rules: a JWK set, or a function that returns the key of a token by its header. */
  keys?: TokenKeys;
  /** Called for every event, for your logs and metrics: one or several of `jsonLines()`, `analyticsEngine(…)`, `openTelemetry(…)` and functions. */
  onEvent?: Sink | readonly Sink[];
  /** Sends one event for so many allowed requests. All other events are always sent. Default: 1. */
  sampleAllowed?: number;
  /** Called for every failure. Without `onError` and `onEvent`, the console shows the first failure of each kind. */
  onError?: (event: GateErrorEvent) => unknown;
  /** How long after its check a charge can be settled, in milliseconds. Default: 600,000, ten minutes. */
  settleWithinMs?: number;
  /** How many leading bits of an IPv6 address identify a client, 48 to 128. Default: 64. */
  ipv6Prefix?: number;
  /** On `spin`, read the address from `true-client-ip`. Only safe if every request comes through Akamai. */
  trustTrueClientIp?: boolean;
}

/** What only the application knows of a request. */
export interface GateCheckOptions {
  /** The client's address from the host's own API or socket, for the platforms `direct` and `fastly`. */
  peer?: string | undefined;
  /** The subject of a token that the application has verified. */
  subject?: string | undefined;
  /** An API key that the application has found valid. Only its hash is counted. */
  apiKey?: string | undefined;
  /** Count this key in place of the sender's identity: any well-formed text with a start of its own, such as `account:42`. */
  key?: string | undefined;
  /** The sender's tier, such as a plan. */
  tier?: string | undefined;
  /** How likely a human sent the request, from 0 to 255, for rules with `bot_score_below`. */
  botScore?: number | undefined;
  /** The keys of the dimensions that the rules declare, as `{ tenant: "tenant:42" }`. */
  keys?: Keys;
  /** The cost, in place of the rule's. */
  cost?: number | undefined;
  /** The estimated cost of a request whose cost is known only afterwards, in place of `cost`. Settle it with `settle`. */
  estimate?: number | undefined;
  /**
   * Charges all checks with this token once. A client that chooses its own token can repeat a request that was admitted for free.
   * Without it, the gate makes one if the request needs it.
   */
  token?: string | undefined;
  /** The time of the request, in milliseconds since the epoch. Default: `Date.now()`. */
  now?: number | undefined;
}

/** A check's options, or a function that returns or promises them. */
type Chosen<T> = T | PromiseLike<T> | (() => T | PromiseLike<T>);

const OPTIONS = ["platform", "stores", "name", "keys", "onEvent", "sampleAllowed", "onError", "settleWithinMs", "ipv6Prefix", "trustTrueClientIp"];
const CHECK_OPTIONS = ["peer", "subject", "apiKey", "key", "tier", "botScore", "keys", "cost", "estimate", "token", "now"];
const PLATFORMS = ["cloudflare", "vercel", "netlify", "fastly", "spin", "direct"] as const;
/** The options that are texts, in the order of `RulesCaller.tell`. */
const TEXTS = ["peer", "subject", "apiKey", "key", "tier", "token"] as const;
const STORES = "{ default: (limit) => new Tidegate(limit) }";

/** Sixteen bytes for the hashes of keys, and eight for the spread of `Retry-After`. */
const SEED_LEN = 24;

/** A settlement to what was charged, in place of a cost. */
const WHAT_WAS_CHARGED = -1;

/** What the console shows if there is no `onError` and no `onEvent`. A client can cause the other kinds. */
const WARNED: ErrorKind[] = ["misconfigured", "unavailable", "timeout", "refused", "corrupt", "unsupported"];

/** What a `Gate` does, whichever files it reads. */
export abstract class BaseGate {
  readonly #rules: RulesGate;
  readonly #stores: Stores;
  readonly #tokens: Tokens | undefined;
  readonly #options: { onError: GateOptions["onError"]; sinks: Sink[]; every: number };
  readonly #idle: RulesCaller[] = [];
  /** The kinds of errors that the console has shown. */
  readonly #warned = new Set<string>();
  readonly #readsToml: boolean;
  /** The name of the file, and that under which its text or object was read. */
  #name: string;
  #loaded = "";
  #text = "{}";
  #fields: string[] = [];
  #warnings: readonly string[] = [];
  #algorithms: string[] | null = null;
  #holdsSlots = false;
  #isSeeded = false;

  /** `ending` is that of the name of a file whose text is given without a name. */
  protected constructor(engine: RulesEngine, ending: "json" | "toml", rules: unknown, options: GateOptions) {
    const fields = new Fields(options, "", OPTIONS);
    const platform = fields.need("platform", fields.choice("platform", PLATFORMS), PLATFORMS.join(" or "));
    const stores = fields.need("stores", fields.get("stores"), STORES);
    if (typeof stores !== "object" || Object.keys(stores as object).length === 0) throw invalid("stores", `none; write ${STORES}`);
    for (const [name, make] of Object.entries(stores as Record<string, unknown>)) {
      if (typeof make !== "function") throw invalid(`stores.${name}`, `not a function; write ${STORES}`);
      // The WebAssembly gets all names as one text.
      if (name.includes("\0")) throw invalid("stores", `the name ${JSON.stringify(name)} contains a NUL; write another`);
    }
    const onEvent = fields.get("onEvent");
    const sinks = (onEvent === undefined ? [] : Array.isArray(onEvent) ? onEvent : [onEvent]) as unknown[];
    if (!sinks.every((sink) => typeof sink === "function")) throw invalid("onEvent", "not a function; write (event) => console.log(event)");
    const every = fields.whole("sampleAllowed") ?? 1;
    if (every === 0 || every > 1_000_000) throw invalid("sampleAllowed", `${every} is out of range; write 1 to 1000000`);
    this.#options = { onError: fields.call("onError", "(event) => console.error(event)") as GateOptions["onError"], sinks: sinks as Sink[], every };
    const keys = fields.get("keys");
    this.#tokens = keys === undefined ? undefined : new Tokens(keys);
    this.#readsToml = ending === "toml";
    this.#name = fields.text("name", `rules.${ending}`) ?? `rules.${ending}`;
    this.#stores = new Stores(stores as Record<string, Store>, platform);
    const settleWithinMs = fields.whole("settleWithinMs");
    if (settleWithinMs === 0) throw invalid("settleWithinMs", "0 leaves no time to settle; write at least 1");
    this.#rules = told(() => new engine.RulesGate(Object.keys(stores as object).join("\0"), platform, fields.whole("ipv6Prefix") ?? 64, fields.flag("trustTrueClientIp") ?? false, settleWithinMs ?? 0));
    this.reload(rules as string);
  }

  /**
   * Replaces the rules. Limits of the same name and shape keep their counts, and requests that are being decided are decided by
   * the old rules. If it throws, the old rules remain.
   */
  reload(rules: string | object, name: string = this.#name): void {
    const text = textOf(rules);
    const named = typeof rules === "string" ? name : name.replace(/\.toml$/, ".json");
    const [oldText, oldName] = [this.#text, this.#loaded];
    try {
      this.#load(text, named);
    } catch (thrown) {
      if (oldText !== "{}") this.#load(oldText, oldName);
      throw thrown;
    }
    [this.#text, this.#loaded, this.#name] = [text, named, name];
  }

  #load(text: string, name: string): void {
    if (!this.#readsToml && name.endsWith(".toml")) throw invalid("name", `${name}: this Gate reads JSON; import the Gate of "@tidegate/edge/gate/toml" to read TOML`);
    const read = JSON.parse(told(() => this.#rules.read(name, text))) as { warnings: string[]; tokens: string[] | null; probes: [number, Written][] };
    if (read.tokens && !this.#tokens) throw invalid("keys", "missing, and the rules have tokens; write a JWK set, { keys: [...] }");
    for (const [store, policy] of read.probes) this.#rules.store(store, ...this.#stores.probe(store, policy));
    const loaded = JSON.parse(told(() => this.#rules.load())) as { fields: string[]; policies: [number, number, Written | null][] };
    [this.#warnings, this.#algorithms, this.#fields] = [read.warnings, read.tokens, loaded.fields];
    const limiters = loaded.policies.map(([store, policy, written]) => this.#stores.prepare(store, policy, written));
    this.#holdsSlots = limiters.some((limiter) => limiter.holdsSlots);
  }

  /** What is probably a mistake in the rules, each with its position. */
  get warnings(): readonly string[] {
    return this.#warnings;
  }

  /** What the proposed limits of the table `stores` would have changed so far. */
  get shadows(): readonly ShadowCounts[] {
    const counted = JSON.parse(told(() => this.#rules.shadows())) as [string, string, number, number, number, number, number][];
    return counted.map(([store, limit, bothAdmit, bothDeny, onlyProposalDenies, onlyCurrentDenies, failed]) => ({ store, limit, bothAdmit, bothDeny, onlyProposalDenies, onlyCurrentDenies, failed }));
  }

  /**
   * Decides on a request, and charges it if every limit that applies admits it.
   *
   * It never throws. If a store fails (`unavailable` or `timeout`), `on_failure` of the rule decides. After any other error, the
   * request is rejected, because a client could have caused the error. `verdict.error` says what went wrong.
   *
   * `options` may be a promise or a function, also an async one. If it throws, the request is rejected as invalid.
   */
  async check(request: Request, options: Chosen<GateCheckOptions> = {}): Promise<GateVerdict> {
    try {
      const given = typeof options === "function" || "then" in Object(options) ? await chosen(options) : options;
      const read = readOptions(given);
      let token = read.token;
      const said = await this.#run((caller) => this.#begin(caller, request, read, false), () => (token = crypto.randomUUID()));
      const written = JSON.parse(said) as Told & { events?: WrittenEvent[]; error?: [ErrorKind, string] };
      const error = written.error && TidegateError.from(written.status === 500 ? ["misconfigured", written.error[1]] : written.error);
      if (token !== undefined) written.token = token;
      const verdict = new GateVerdict(written, error);
      if (error) this.#tell(error, verdict);
      for (const event of written.events ?? []) for (const sink of this.#options.sinks) quietly(() => sink(eventOf(event)));
      return verdict;
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      const verdict = new GateVerdict(undecided(error.kind), error);
      this.#tell(error, verdict);
      return verdict;
    }
  }

  /** Explains, for people, which rule, keys and limits apply to a request, and why. It asks no store. */
  async explain(request: Request, options: GateCheckOptions = {}): Promise<string> {
    try {
      return await this.#run((caller) => this.#begin(caller, request, readOptions(options), true), () => crypto.randomUUID());
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  /**
   * Settles a request to what it cost. Its rule or its check had an estimate, or it had a token:
   *
   *     const verdict = await gate.check(request);
   *     if (verdict.response) return verdict.response;
   *     const { answer, tokens } = await complete(request);
   *     await gate.settle(verdict, { cost: tokens });
   *
   * The first settlement of a charge counts. A further one has `replayed` and changes nothing, so it can be retried. Returns what
   * a request of cost 0 would get now, or `verdict` itself if nothing was charged, because the request was refused, not limited or
   * the store failed. Throws a `TidegateError`: `unknown_charge` if it is too late.
   */
  settle(verdict: GateVerdict, actual: { cost: number; now?: number }): Promise<GateVerdict> {
    return this.#settle(verdict, () => whole("cost", actual?.cost), actual?.now);
  }

  /**
   * Gives back the slots of a request that has ended, if a limit of its rule is a concurrency limit. What it was charged stays
   * charged. Otherwise it is like `settle`. Does nothing for a request without a charge.
   */
  release(verdict: GateVerdict, options?: { now?: number }): Promise<GateVerdict> {
    return verdict.charge ? this.#settle(verdict, () => WHAT_WAS_CHARGED, options?.now) : Promise.resolve(verdict);
  }

  /**
   * Refunds the part `cost` of what a request was charged, by default all of it: it is settled to the rest. The request needs a
   * charge, as for `settle`.
   */
  async refund(verdict: GateVerdict, { cost = verdict.charge?.cost ?? 0, now }: { cost?: number; now?: number } = {}): Promise<void> {
    const rest = (verdict.charge?.cost ?? 0) - whole("cost", cost);
    await this.settle(verdict, now === undefined ? { cost: Math.max(rest, 0) } : { cost: Math.max(rest, 0), now });
  }

  /** Whether a limit of the rules is a concurrency limit, so that requests hold a slot until they are released. */
  get holdsSlots(): boolean {
    return this.#holdsSlots;
  }

  #begin(caller: RulesCaller, request: Request, read: ReturnType<typeof readOptions>, explains: boolean): string {
    const { headers, method, url } = Object(request) as Request;
    if (typeof (headers as Partial<Headers> | undefined)?.get !== "function" || typeof url !== "string") {
      throw invalid("request", "no Request with Headers; write check(new Request(url, { headers }))");
    }
    // A value has no line end and no NUL.
    const values = this.#fields.map((name) => headers.get(name) ?? "\0").join("\n");
    read.texts.forEach((text, what) => text !== undefined && caller.tell(what, text));
    for (const [name, key] of read.keys) caller.key(name, key);
    if (read.hasNumbers) caller.numbers(read.botScore, read.cost, read.isEstimate, read.needsPeer);
    return caller.check(method, url, values, read.now, explains);
  }

  async #settle(verdict: GateVerdict, cost: () => number, now: number = Date.now()): Promise<GateVerdict> {
    try {
      const [units, instant] = [cost(), whole("now", now)];
      const held = GateVerdict.held(verdict);
      if (!held) {
        if (verdict.outcome !== "allowed") return verdict;
        throw invalid("verdict", "its check had no estimate and no token; write estimate in the rule, or check(request, { estimate })");
      }
      const { token, hold } = held;
      const places = Uint32Array.from(hold.flatMap(([store, policy, , ...keys]) => [store, policy, keys.length / 2]));
      const keys = hold.flatMap(([, , , ...keys]) => keys).join("\n");
      const said = await this.#run((caller) => caller.settle(token, places, keys, units, instant), () => token);
      return new GateVerdict({ ...(JSON.parse(said) as Told), rule: verdict.rule! });
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.#tell(error, undefined);
      throw error;
    }
  }

  /** Runs a call: carries each question to the stores, and each answer back. */
  async #run(begins: (caller: RulesCaller) => string, token: () => string): Promise<string> {
    if (!this.#isSeeded) {
      // Workers have no randomness before their first request.
      this.#rules.seed(crypto.getRandomValues(new Uint8Array(SEED_LEN)), this.#options.sinks.length > 0 ? this.#options.every : 0);
      this.#isSeeded = true;
    }
    const caller = this.#idle.pop() ?? this.#rules.caller();
    try {
      let said = begins(caller);
      while (said.startsWith("[")) said = await this.#answered(caller, JSON.parse(said) as [string, ...unknown[]], token);
      this.#idle.push(caller);
      return said;
    } catch (thrown) {
      // If anything but an error of the gate was thrown, its WebAssembly has trapped and the caller cannot be used again.
      if (Array.isArray(thrown)) this.#idle.push(caller);
      throw thrown;
    }
  }

  /** Answers a question of the WebAssembly, and returns what it says then. */
  async #answered(caller: RulesCaller, [verb, ...rest]: [string, ...unknown[]], token: () => string): Promise<string> {
    let step: () => string;
    try {
      if (verb === "token") {
        const text = token();
        step = () => caller.told(text);
      } else if (verb === "verify") {
        const payload = await this.#tokens!.verify(rest[0] as string, this.#algorithms ?? []);
        step = () => caller.told(payload);
      } else {
        const numbers = await this.#stores[verb as "check" | "settle"](rest as never);
        step = () => caller.decided(numbers);
      }
    } catch (thrown) {
      const { kind, message } = TidegateError.from(thrown);
      step = () => caller.failed(kind, message);
    }
    return step();
  }

  /** Reports an error to `onError`. Without it and events, the console shows the first error of each kind that no client can cause. */
  #tell({ kind, message }: TidegateError, verdict: GateVerdict | undefined): void {
    const { onError, sinks } = this.#options;
    const failedOpen = verdict?.failedOpen ?? false;
    if (onError) return quietly(() => onError({ kind, message, rule: verdict?.rule, failedOpen }));
    if (sinks.length > 0 || !WARNED.includes(kind) || this.#warned.has(kind)) return;
    this.#warned.add(kind);
    const effect = failedOpen ? "Requests pass uncounted. " : "";
    quietly(() => console.warn(`tidegate: ${message}. ${effect}This is shown once; set onError or onEvent to get every error.`));
  }
}

/** Calls the WebAssembly, which throws the kind and the message of an error. */
function told<T>(call: () => T): T {
  try {
    return call();
  } catch (thrown) {
    throw TidegateError.from(thrown);
  }
}

/** The text of a rules file. */
function textOf(rules: unknown): string {
  if (typeof rules === "string") return rules;
  if (typeof rules === "object" && rules !== null) return JSON.stringify(rules, null, 2);
  throw invalid("rules", `${shown(rules)} is neither; write the text of a rules file, or an object`);
}

/** The options that a promise or a function of the application brings. Any error makes the request invalid. */
async function chosen(options: Chosen<unknown>): Promise<unknown> {
  try {
    return await (typeof options === "function" ? (options as () => unknown)() : options);
  } catch (cause) {
    throw invalid("options", "reading them threw", { cause });
  }
}

/** Reads a check's options. */
function readOptions(options: unknown) {
  only(options, "", CHECK_OPTIONS);
  const given = options as Record<string, unknown>;
  const texts = TEXTS.map((name) => {
    // Null says that a middleware finds no address. Anything else but an address counts as none.
    if (name === "peer") return typeof given[name] === "string" ? given[name] : undefined;
    return given[name] === undefined || given[name] === null ? undefined : text(name, given[name]);
  });
  const keys = Object.entries(Object(given["keys"]) as object).map(([name, key]) => [name, text(`keys.${name}`, key)] as const);
  const number = (name: string) => (given[name] === undefined ? WHAT_WAS_CHARGED : whole(name, given[name]));
  const [botScore, cost, estimate] = [number("botScore"), number("cost"), number("estimate")];
  if (botScore > 255) throw invalid("botScore", `${botScore} is out of range; write 0 to 255`);
  if (estimate === 0) throw invalid("estimate", "0 is out of range; write at least 1");
  const isEstimate = estimate > 0;
  if (isEstimate && cost >= 0) throw invalid("estimate", "it replaces cost; write check(request, { estimate })");
  const needsPeer = given["peer"] === null;
  const token = texts[TEXTS.indexOf("token")];
  if (token?.trim() === "") throw invalid("token", "empty; write one that is unique to the request, or leave it out");
  return {
    texts,
    keys,
    token,
    botScore,
    cost: isEstimate ? estimate : cost,
    isEstimate,
    needsPeer,
    hasNumbers: botScore >= 0 || cost >= 0 || isEstimate || needsPeer,
    now: given["now"] === undefined ? Date.now() : whole("now", given["now"]),
  };
}

/** A text that has one form in UTF-8, so that no two keys become one. The message does not repeat it: it may be a secret. */
function text(field: string, value: unknown): string {
  if (typeof value !== "string") throw invalid(field, "not a string");
  if (/\p{Surrogate}/u.test(value)) throw invalid(field, "contains a lone surrogate; write well-formed text");
  return value;
}

/** The verdict on a request that the gate was not asked about, or that it could not answer. */
function undecided(kind: ErrorKind): Told {
  const said = kind === "invalid" ? { error: "invalid_request" } : { error: "limiter_unavailable", kind };
  return { outcome: "failed_closed", fields: { "content-type": "application/json" }, status: kind === "invalid" ? 400 : 503, body: JSON.stringify(said) };
}

/** Calls a callback of the application. The async function turns anything that it throws into a rejection. */
function quietly(callback: () => unknown): void {
  (async () => callback())().catch(() => undefined);
}
