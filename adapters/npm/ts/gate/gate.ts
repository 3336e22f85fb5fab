import { type Chosen, chosen, isPromised } from "../check_options.js";
import { AddressSource } from "../core/address.js";
import { hasMissingIp, type Keys } from "../core/key.js";
import { undecided } from "../core/response.js";
import { invalid, TidegateError } from "../error.js";
import { choice, Fields, shown } from "../fields.js";
import { FrontEnd, notRequest, told } from "../front_end.js";
import type { ErrorEvent } from "../options.js";
import { type Platform, PLATFORMS } from "../platform.js";
import { SETTLE_WITHIN_MS, Settlement, type Settling } from "../settlement.js";
import { StoreLog, type Watched } from "../store_health.js";
import { type VerdictParts, Verdict } from "../verdict.js";
import { type GateCheck, type GateCheckOptions, readGateCheck } from "./check_options.js";
import { type Composed, composed } from "./combinators/compose.js";
import { Decider, misconfigured } from "./decide.js";
import { Events, type Sink } from "./events.js";
import { explained } from "./explain.js";
import { fitted } from "./fitted_rules.js";
import type { Credit, CreditParts } from "./grant.js";
import { Facts, UNREADABLE } from "./request_facts.js";
import { compile } from "./rules/compile.js";
import { type FileValue, rootOf } from "./rules/file_value.js";
import { type Node, readJson } from "./rules/json.js";
import { NEEDS_CREDITS, NEEDS_NUMBERS } from "./rules/missing_options.js";
import { quoted } from "./rules/quoted_text.js";
import { type MakeLimitNumbers, type MakeThresholds, policiesOf, type ReadPart, type Rule, type Rules } from "./rules/rules.js";
import { suggestion } from "./rules/suggestion.js";
import type { Sender } from "./sender.js";
import { OwnStore, type Store } from "./stores.js";
import { type Claims, claimsOf, type Reason, tokenOf } from "./token_claims.js";
import { type TokenKeys, Tokens } from "./token_signatures.js";

export { type ErrorKind, TidegateError } from "../error.js";
export type { ErrorEvent, Operation, Platform } from "../options.js";
export type { Keys } from "../core/key.js";
export { type Charge, type Outcome, type QuotaStatus, Verdict } from "../verdict.js";
export type { GateCheckOptions } from "./check_options.js";
export type { Framework } from "./frameworks.js";
export { type AnalyticsEngine, analyticsEngine, type Event, jsonLines, type Meter, openTelemetry, type Sink } from "./events.js";
export type { Limit, Store } from "./stores.js";
export type { FindKey, Jwk, JwkSet, TokenKeys } from "./token_signatures.js";

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
  /** The name of the rules file, which begins each message about it. An object has none. Default: `rules.json`, or `rules.toml` for `@tidegate/edge/gate/toml`. */
  name?: string;
  /** The keys that verify the tokens of the rules: a JWK set, or a function that returns the key of a token by its header. */
  keys?: TokenKeys;
  /** `limitsFromData` of `@tidegate/edge/gate/limits`, for rules that have `limit_from` or `overrides`. */
  limits?: MakeLimitNumbers;
  /** `calendarWindows` of `@tidegate/edge/gate/calendar`, for rules that have a `calendar_window`. */
  calendar?: ReadPart;
  /** `balances` of `@tidegate/edge/gate/credits`, for rules that have a `balance`, and for `grant`. */
  credits?: CreditParts;
  /** `warnAt(…)` of `@tidegate/edge/gate/warn-at`, for rules that have `warn_at`. */
  warnAt?: MakeThresholds;
  /** Called for every event, for your logs and metrics: one or several of `jsonLines()`, `analyticsEngine(…)`, `openTelemetry(…)` and functions. */
  onEvent?: Sink | readonly Sink[];
  /** Sends one event for so many allowed requests. All other events are always sent. Default: 1. */
  sampleAllowed?: number;
  /**
   * Called for every failure, and when a store goes down or is back. Without it, the console has a line for both, and of other failures at
   * most one a second for each kind.
   */
  onError?: (event: ErrorEvent) => unknown;
  /** How long after its check a charge can be settled, in milliseconds. Default: 600,000, ten minutes. */
  settleWithinMs?: number;
  /** How many leading bits of an IPv6 address identify a client, 48 to 128. Default: 64. */
  ipv6Prefix?: number;
  /** On `spin`, read the address from `true-client-ip`. Only safe if every request comes through Akamai. */
  trustTrueClientIp?: boolean;
}

/** The name of what other entries of the package need of a gate: the application may have loaded this module twice. */
export const INSIDE = Symbol.for("@tidegate/edge/inside");

const OPTIONS = ["platform", "stores", "name", "keys", "limits", "calendar", "credits", "warnAt", "onEvent", "sampleAllowed", "onError", "settleWithinMs", "ipv6Prefix", "trustTrueClientIp"];
const STORES = "{ default: (limit) => new Tidegate(limit) }";

/** What a `Gate` does, whichever files it reads. */
export abstract class BaseGate extends FrontEnd implements Settling {
  /** Undefined if this gate reads no TOML. */
  readonly #readToml: ((text: string) => Node) | undefined;
  protected readonly log: StoreLog;
  readonly #stores: readonly OwnStore[];
  readonly #source: AddressSource;
  readonly #tokens: Tokens | undefined;
  readonly #settleWithinMs: number;
  readonly #events: Events;
  readonly #makeNumbers: MakeLimitNumbers | undefined;
  readonly #calendar: ReadPart | undefined;
  readonly #credits: CreditParts | undefined;
  readonly #makeThresholds: MakeThresholds | undefined;
  readonly #settlement = new Settlement({
    layerAt: (store) => this.#decider.composed[store]!.layer,
    heldBy: (verdict) => Verdict.held(verdict)!,
    look: () => this.#decider.rules.responses,
    told: (operation, run) => told(this, operation, run),
  });
  #name: string;
  #decider!: Decider;
  #holdsSlots = false;

  protected constructor(readToml: ((text: string) => Node) | undefined, rules: string | object, options: GateOptions) {
    const fields = new Fields(options, "", OPTIONS);
    super();
    const platform = fields.need("platform", fields.read("platform", choice(PLATFORMS)), PLATFORMS.join(" or "));
    const stores = fields.need("stores", fields.get("stores"), STORES);
    if (typeof stores !== "object" || Object.keys(stores as object).length === 0) throw invalid("stores", `none; write ${STORES}`);
    this.#stores = Object.entries(stores as Record<string, Store>).map(([name, make]) => {
      if (typeof make !== "function") throw invalid(`stores.${name}`, `not a function; write ${STORES}`);
      return new OwnStore(name, make, platform);
    });
    const onError = fields.call("onError", "(event) => console.error(event)") as GateOptions["onError"];
    this.log = new StoreLog(onError, this.#stores, (store) => this.#effectOf(store));
    const onEvent = fields.get("onEvent");
    const sinks = (onEvent === undefined ? [] : Array.isArray(onEvent) ? onEvent : [onEvent]) as unknown[];
    if (!sinks.every((sink) => typeof sink === "function")) throw invalid("onEvent", "not a function; write (event) => console.log(event)");
    const every = fields.whole("sampleAllowed") ?? 1;
    if (every === 0 || every > 1_000_000) throw invalid("sampleAllowed", `${every} is out of range; write 1 to 1000000`);
    this.#events = new Events(sinks as Sink[], every);
    const keys = fields.get("keys");
    this.#tokens = keys === undefined ? undefined : new Tokens(keys);
    this.#settleWithinMs = fields.whole("settleWithinMs") ?? SETTLE_WITHIN_MS;
    if (this.#settleWithinMs === 0) throw invalid("settleWithinMs", "0 leaves no time to settle; write at least 1");
    this.#source = new AddressSource(platform, fields.whole("ipv6Prefix") ?? 64, fields.flag("trustTrueClientIp") ?? false);
    this.#readToml = readToml;
    this.#makeNumbers = fields.call("limits", "limitsFromData") as MakeLimitNumbers | undefined;
    this.#calendar = fields.call("calendar", "calendarWindows") as ReadPart | undefined;
    this.#credits = fields.call("credits", "balances") as CreditParts | undefined;
    this.#makeThresholds = fields.call("warnAt", "warnAt(jsonLines())") as MakeThresholds | undefined;
    const usual = `rules.${readToml ? "toml" : "json"}`;
    this.#name = fields.text("name", usual) ?? usual;
    this.reload(rules);
  }

  /**
   * Replaces the rules. Limits of the same name and shape keep their counts, and requests that are being decided are decided by
   * the old rules. If it throws, the old rules remain.
   */
  reload(rules: string | object, name: string = this.#name): void {
    const before = this.#stores.map(({ capabilities }) => capabilities);
    try {
      this.#load(compile(this.#rootOf(rules, name), this.#makeNumbers?.((this.#decider as Decider | undefined)?.rules.numbers), this.#calendar, this.#makeThresholds?.(), this.#credits));
    } catch (thrown) {
      this.#stores.forEach((store, place) => (store.capabilities = before[place]!));
      throw TidegateError.from(thrown);
    }
    this.#name = name;
  }

  /**
   * Replaces the limits of single keys that have a file of their own, which has nothing but the table `overrides`, as text or as an object.
   * It precedes that table of the rules. All else stays as it is, and so do the counts. `reload` keeps these overrides. If it throws, the old
   * ones remain.
   */
  reloadOverrides(overrides: string | object, name: string = this.#name.replace("rules", "overrides")): void {
    const { rules } = this.#decider;
    if (!rules.numbers) throw invalid("limits", NEEDS_NUMBERS);
    rules.numbers.reload(this.#rootOf(overrides, name), rules);
  }

  /** What a file of this name says, or an object. */
  #rootOf(given: string | object, name: string): FileValue {
    const [text, isObject] = [textOf(given), typeof given !== "string"];
    const named = isObject ? "rules.json" : name;
    return rootOf({ name: named, text, isObject }, this.#reader(named));
  }

  /** What reads a file of this name. */
  #reader(name: string): (text: string) => Node {
    if (name.endsWith(".json")) return (text) => readJson(text, true);
    if (!name.endsWith(".toml")) throw invalid("name", `${name}: end the file's name with .toml or .json`);
    if (this.#readToml) return this.#readToml;
    throw invalid("name", `${name}: this Gate reads JSON; import the Gate of "@tidegate/edge/gate/toml" to read TOML`);
  }

  #load(rules: Rules): void {
    if (rules.tokens && !this.#tokens) throw invalid("keys", "missing, and the rules have tokens; write a JWK set, { keys: [...] }");
    const stores = this.#stores;
    stores.forEach((store, place) => {
      const [policy] = policiesOf(rules, store.name, place === 0);
      if (policy) store.probe(policy);
    });
    const names = stores.map(({ name }) => name);
    const before = (this.#decider as Decider | undefined)?.composed ?? [];
    const placeOf = ({ store }: Rule) => (store === undefined ? 0 : names.indexOf(store));
    const leasesOf = (place: number) => {
      const leases = rules.rules.flatMap((rule) => (rule.lease && placeOf(rule) === place ? [rule.lease] : []));
      return [...new Map(leases.map((lease) => [JSON.stringify(lease), lease])).values()];
    };
    const around: readonly Composed[] = composed(rules.stores, stores, names, leasesOf, before);
    const fitting = fitted(rules, around, stores);
    // What is wrong with a limiter is known before the first request.
    for (const rule of fitting.rules) for (const policy of rule.policies) if (policy) stores[placeOf(rule)]!.prepare(policy, rule.lease);
    this.#holdsSlots = fitting.rules.some(({ policies }) => policies.some((policy) => policy?.holdsSlots));
    this.#decider = new Decider(fitting, around, names, this.#source, this.#settleWithinMs, this.#events);
    names.forEach((name, place) => this.#events.lends(name, Math.max(0, ...leasesOf(place).map(({ grace }) => grace))));
  }

  /** What is probably a mistake in the rules, each with its position. */
  get warnings(): readonly string[] {
    return this.#decider.rules.warnings;
  }

  /** The table of prices of the rules, for `Prices` of `@tidegate/edge/gate/prices`, which reads it. */
  get prices(): unknown {
    return this.#decider.rules.prices;
  }

  /** What the proposed limits of the table `stores` would have changed so far. */
  get shadows(): readonly ShadowCounts[] {
    return this.#decider.composed.flatMap(({ shadows }, place) => shadows.map(([limit, { counts }]) => ({ store: this.#stores[place]!.name, limit, ...counts })));
  }

  /**
   * Decides on a request, and charges it if every limit that applies admits it.
   *
   * It rejects only for what is no `Request`. If a store fails (`unavailable` or `timeout`), `on_failure` of the rule decides. After any other error, the
   * request is rejected, because a client could have caused the error. `verdict.error` says what went wrong.
   *
   * `options` may be a promise or a function, also an async one. If it throws, the request is rejected as invalid.
   */
  async check(request: Request, options: Chosen<GateCheckOptions> = {}): Promise<Verdict> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    let told: VerdictParts;
    try {
      const given = isPromised(options) ? await chosen(options) : options;
      told = await this.#decide(factsOf(request, given));
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      told = { outcome: "failed_closed", error, sent: undecided(error.kind, false, false) };
    }
    const verdict = new Verdict(told);
    this.tell("check", told.error === UNREADABLE ? undefined : told.error, verdict.failedOpen, told.rule === undefined ? undefined : { rule: told.rule });
    return verdict;
  }

  /**
   * Adds units to the balance of a sender, such as credits that a customer has bought, without a request: to the one that is charged when
   * this sender makes a request. The gate needs the option `credits`.
   *
   *     await gate.grant({ limit: "api", to: { subject: user.id }, units: 5_000, token: order.id });
   *
   * After an error, repeat it with its token. A repeated one is `replayed`. Throws a `TidegateError`: `invalid` for a name of no limit, tier,
   * store or dimension, with the nearest one, and for a limit without a balance; and those of a limiter's `grant`.
   */
  grant(credit: Credit): Promise<Verdict> {
    return told(this, "grant", async () => {
      if (!this.#credits) throw invalid("credits", NEEDS_CREDITS);
      return this.#credits.grant(this.#decider, credit);
    });
  }

  settle(verdict: Verdict, actual: { cost: number; now?: number | undefined }): Promise<Verdict> {
    return this.#settlement.settle(verdict, actual);
  }

  release(verdict: Verdict, options?: { now?: number | undefined }): Promise<Verdict> {
    return this.#settlement.release(verdict, options);
  }

  refund(verdict: Verdict, part?: { cost?: number | undefined; now?: number | undefined }): Promise<void> {
    return this.#settlement.refund(verdict, part);
  }

  /** Explains, for people, which rule, keys and limits apply to a request, and why. It asks no store. */
  async explain(request: Request, options: GateCheckOptions = {}): Promise<string> {
    const mistake = notRequest(request);
    if (mistake) throw mistake;
    try {
      const [decider, facts] = [this.#decider, factsOf(request, options)];
      const applied = decider.applied(facts);
      const sender = await this.#senderOf(decider, facts, applied.length > 0);
      return explained(decider.rules, applied, facts, sender, this.#stores[0]!.name);
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  /** Whether a limit of the rules is a concurrency limit, so that requests hold a slot until they are released. */
  get holdsSlots(): boolean {
    return this.#holdsSlots;
  }

  /** Throws if a store cannot decide because a variable or a binding is missing, as `assertReady` of its limiters does. It asks no store. */
  assertReady(): void {
    for (const store of this.#stores) store.assertReady();
  }

  /** The rules and the stores, and what finds the sender of a request. */
  get [INSIDE](): readonly [decider: Decider, sender: (facts: Facts) => Promise<Sender>] {
    const decider = this.#decider;
    return [decider, (facts) => this.#senderOf(decider, facts, true)];
  }

  async #decide(facts: Facts): Promise<VerdictParts> {
    const decider = this.#decider;
    const applied = decider.applied(facts);
    const sender = await this.#senderOf(decider, facts, applied.length > 0);
    const prepared = decider.prepare(facts, applied, sender);
    if ("outcome" in prepared) return prepared;
    const isUnknown = ({ check }: (typeof prepared.asks)[0]) => Object.values(check.keys as Keys).some(hasMissingIp);
    return facts.options.peer === null && this.#source.readsPeer && prepared.asks.some(isUnknown) ? misconfigured(prepared) : decider.decide(prepared);
  }

  /** The sender of a request, with what its token claims if any limit may count it. */
  async #senderOf(decider: Decider, facts: Facts, isCounted: boolean): Promise<Sender> {
    declared(decider.rules, facts.options);
    const sender = decider.sender(facts);
    if (isCounted && decider.rules.tokens) sender.claims = await this.#claims(decider, facts, sender);
    return sender;
  }

  /** What the token of a request claims. A signature costs more than everything else, so those on the list `deny` get none verified. */
  async #claims({ rules }: Decider, facts: Facts, sender: Sender): Promise<Claims | Reason | undefined> {
    const { tokens: expected, denied } = rules;
    if (!expected || sender.isOn(denied)) return undefined;
    const token = tokenOf(expected, facts);
    if (typeof token !== "object") return token;
    try {
      return claimsOf(await this.#tokens!.verify(token.text, expected.algorithms), expected, facts.now);
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      if (error.kind === "invalid") return error.message;
      throw error;
    }
  }

  /** What requests get while a store is down. */
  #effectOf({ name }: Watched): string {
    const fallback = this.#decider.rules.stores.find((store) => store.name === name)?.fallback;
    if (!fallback) return "Until it does, on_failure of a rule decides";
    return `The store "${fallback.store}" admits ${fallback.percent} % of each limit in its place, for at most ${fallback.atMostMs} ms`;
  }
}

/** The text of a rules file. */
function textOf(rules: unknown): string {
  if (typeof rules === "string") return rules;
  if (typeof rules === "object" && rules !== null) return JSON.stringify(rules);
  throw invalid("rules", `${shown(rules)} is neither; write the text of a rules file, or an object`);
}

/** Throws if the rules do not declare that the application gives these keys and limits. */
function declared(rules: Rules, { keys, limits }: GateCheck): void {
  const { dimensions, numbers } = rules;
  if (limits) {
    if (!numbers) throw invalid("limits", NEEDS_NUMBERS);
    numbers.check(limits);
  }
  for (const name in keys) {
    if (dimensions.includes(name)) continue;
    const fix = dimensions.length > 0 ? suggestion(name, dimensions) : `write dimensions = [${quoted(name)}] in their file`;
    throw invalid("key", `${quoted(name)} is not a dimension that the rules declare; ${fix}`);
  }
}

/** A request, and what the application tells of it. */
function factsOf(request: Request, options: unknown): Facts {
  return new Facts(request, readGateCheck(options));
}
