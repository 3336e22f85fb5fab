// Compiles a rules file: resolves names, joins limits, and reports mistakes with their positions.

import { MAX_UNITS } from "../../core/arithmetic.js";
import { TidegateError } from "../../error.js";
import type { Lease } from "../../question.js";
import { RulesPolicy } from "../rules_policy.js";
import { apiKey } from "./api_key.js";
import { DIMENSIONS, PART_MARK } from "./dimension_names.js";
import type { FileValue } from "./file_value.js";
import { limitsOf, tiersOf } from "./limits.js";
import { List } from "./lists.js";
import { Matcher } from "./matcher.js";
import { covers, fieldName, identityOf, isUnorderedWith, patternOf, precedes, short } from "./pattern.js";
import { NEEDS_NUMBERS } from "./missing_options.js";
import { quoted } from "./quoted_text.js";
import type { Limit, LimitNumbers, ReadPart, Responses, Rule, Rules, Thresholds } from "./rules.js";
import { limitsOf as limitsAround, type StoreRules, storeOf } from "./store_rules.js";
import { suggestion } from "./suggestion.js";
import { tokensOf } from "./token_rules.js";

/** The longest time that is added to `Retry-After`. */
const SPREAD_MAX = 3_600_000;

/** The longest time in which a charge can be settled. */
const SETTLE_WITHIN_MAX = 7 * 86_400_000;

const FIELDS = ["$schema", "case_insensitive", "exempt_preflights", "dimensions", "api_keys", "tokens", "responses", "lists", "stores", "limits", "overrides", "prices", "rules"];

const RULE_FIELDS = [
  ...["name", "host", "path", "methods", "headers", "bot_score_below", "limits", "cost", "estimate", "store"],
  ...["on_failure", "settle_within_ms", "invalid_token", "challenge"],
];

/**
 * The rules of a file. Throws what is wrong with it, with its position. `numbers` takes limits from data, `calendar` reads calendar windows,
 * `thresholds` what warns, and `credits` balances.
 */
export function compile(root: FileValue, numbers?: LimitNumbers, calendar?: ReadPart, thresholds?: Thresholds, credits?: ReadPart): Rules {
  root.only(FIELDS);
  const [ignoresCase, exemptsPreflights] = [root.has("case_insensitive"), root.has("exempt_preflights")];
  const fields = (name: string) => root.field(name);
  const [tokenTable, limitTable, storeTable, declared, lists] = ["tokens", "limits", "stores", "dimensions", "lists"].map(fields);
  const tokens = tokenTable && tokensOf(tokenTable);
  const dimensions = declared ? dimensionsOf(declared) : [];
  const tiers = limitTable ? tiersOf(limitTable) : [];
  const limits = limitTable ? limitsOf(limitTable, tiers, { tokens, dimensions, numbers, calendar, thresholds, credits }) : [];
  const compiler = new Compiler(limits, tiers, ignoresCase);
  root.field("rules")?.each((rule) => compiler.add(rule));
  const { rules, warnings } = compiler;
  const matcher = new Matcher(rules.map(({ pattern }) => pattern));
  const stores = storeTable?.entries((name, item) => compiler.store(name, item)) ?? [];
  thresholds?.around(stores, storeTable);
  if (limitTable) compiler.warnOfUnusedLimits(limitTable, stores);
  declared?.each((item) => {
    const { text } = item;
    const isUsed = limits.some(({ policies }) => policies.some((policy) => policy?.dimensions.some(({ name }) => name.split(PART_MARK).includes(text))));
    if (!isUsed) warnings.push(item.message(`no limit counts by "${text}"; delete it or write by = "${text}" in one`));
  });
  const keys = root.field("api_keys");
  const { apiKeyHeader, apiKeys } = keys ? apiKeysOf(keys, tiers, warnings) : { apiKeyHeader: undefined, apiKeys: new Map() };
  const responses = responsesOf(root.field("responses"));
  if (responses.paymentRequired && !limits.some(({ policies }) => policies.some((policy) => policy?.balance))) {
    warnings.push(root.required("responses").required("payment_required").message('no limit has a balance, so no denial is a 402; add a quota with algorithm = "balance" or delete it'));
  }
  lists?.only(["allow", "deny"]);
  const [allowed, denied] = [new List(lists?.field("allow")), new List(lists?.field("deny"))];
  const compiled = { matcher, ignoresCase, exemptsPreflights, rules, dimensions, limits, tiers, apiKeyHeader, apiKeys, tokens, stores, responses, allowed, denied, warnings, numbers, thresholds, prices: root.field("prices") };
  const overrides = root.field("overrides");
  if (overrides && !numbers) throw overrides.invalid(NEEDS_NUMBERS);
  if (overrides) numbers!.override(overrides, compiled);
  // A file that is empty, or written only in part, would let everybody pass.
  root.required("rules");
  return compiled;
}

/** The dimensions that the file declares as given by the application. */
function dimensionsOf(list: FileValue): string[] {
  const found: string[] = [];
  list.each((item) => {
    const name = item.checkedName("dimension", item.text);
    if (DIMENSIONS.includes(name)) throw item.invalid(`the gate itself finds the key of "${name}"; delete it here`);
    if (found.includes(name)) throw item.wrong(name, "is written twice; write it once");
    found.push(name);
  });
  return found;
}

function responsesOf(item: FileValue | undefined): Responses {
  item?.only(["format", "spread_retry_after_ms", "draft_6_fields", "retry_after_ms", "payment_required"]);
  const asProblem = item?.choice("format", "json", "problem") === "problem";
  const spreadMs = item?.numberIn("spread_retry_after_ms", 0, SPREAD_MAX) ?? 0;
  const has = (name: string) => item?.has(name) ?? false;
  return { asProblem, spreadMs, draft6: has("draft_6_fields"), retryAfterMs: has("retry_after_ms"), paymentRequired: has("payment_required") };
}

/** The header field of API keys, and the place of each valid key's tier. */
function apiKeysOf(item: FileValue, tiers: readonly string[], warnings: string[]): Pick<Rules, "apiKeyHeader" | "apiKeys"> {
  item.only(["header", "tiers", "without_tier"]);
  const header = item.field("header");
  const apiKeyHeader = header && fieldName(header);
  const apiKeys = new Map<string, number | undefined>();
  item.field("tiers")?.entries((hash, item) => {
    const [key, place] = [apiKey(hash, item), tiers.indexOf(item.text)];
    const fix = "write the tier of a limit, or the key in without_tier";
    if (place < 0) warnings.push(item.message(`no limit has the tier ${quoted(item.text)}, so this key has the usual limits; ${fix}`));
    apiKeys.set(key, place < 0 ? undefined : place);
  });
  item.field("without_tier")?.each((item) => {
    const key = apiKey(item.text, item);
    if (apiKeys.has(key)) throw item.invalid("this key is written twice; write it once");
    apiKeys.set(key, undefined);
  });
  if (apiKeyHeader === undefined && apiKeys.size > 0) throw item.invalid('no header; write header = "x-api-key"');
  return { apiKeyHeader, apiKeys };
}

/** The address of a challenge, which needs no escapes in JSON. */
function address(item: FileValue): string {
  if (/^(?:\/|https:\/\/)[!#-;=?-[\]-~]*$/.test(item.text) && item.text.length <= 512) return item.text;
  throw item.wrong(item.text, "is not an address; write one such as /challenge or https://example.com/");
}

class Compiler {
  readonly rules: Rule[] = [];
  readonly warnings: string[] = [];
  readonly #limits: readonly Limit[];
  readonly #tiers: readonly string[];
  readonly #ignoresCase: boolean;
  /** The places of rules by their names. */
  readonly #names = new Map<string, number>();
  /** Those that match the same hosts and paths. */
  readonly #alike = new Map<string, Rule[]>();
  /** The policies of a combination of limits. */
  readonly #joined = new Map<string, (RulesPolicy | undefined)[]>();

  constructor(limits: readonly Limit[], tiers: readonly string[], ignoresCase: boolean) {
    this.#limits = limits;
    this.#tiers = tiers;
    this.#ignoresCase = ignoresCase;
  }

  add(item: FileValue): void {
    item.only(RULE_FIELDS);
    const [named, listed, challenged] = ["name", "limits", "challenge"].map((name) => item.field(name));
    const name = named ? this.#own(named) : this.#unnamed(item);
    const [cost, estimate] = [item.numberIn("cost", 0, MAX_UNITS), item.numberIn("estimate", 1, MAX_UNITS)];
    if (cost !== undefined && estimate !== undefined) throw item.required("estimate").invalid("the rule has a cost, too; write one of them");
    const limits = listed?.each((limit) => this.#place(limit, limit.text)) ?? [];
    const policies = (listed ?? item).placing(() => this.#policies(limits));
    const lease = listed?.placing(() => this.#lease(limits, estimate));
    const opensOnFailure = item.choice("on_failure", "open", "closed") === "open";
    const settleWithinMs = item.numberIn("settle_within_ms", 1, SETTLE_WITHIN_MAX);
    const store = item.field("store")?.text;
    const refusesInvalidTokens = item.choice("invalid_token", "refuse", "anonymous") === "refuse";
    const challenge = challenged && address(challenged);
    if (challenge !== undefined && limits.length > 0) throw item.invalid("a rule with a challenge passes no request; delete its limits");
    const pattern = patternOf(item, this.#ignoresCase);
    const told = { name, pattern, cost: cost ?? estimate ?? 1, estimate, store, opensOnFailure, settleWithinMs, lease };
    const rule: Rule = { ...told, refusesInvalidTokens, challenge, limits, policies };
    this.#warnOfOverlaps(item, rule);
    this.#names.set(name, this.rules.length);
    this.rules.push(rule);
  }

  store(name: string, item: FileValue): StoreRules {
    const found = storeOf(name, item, (item, name) => this.#limits[this.#place(item, name)]!.policies[0]!);
    const used = limitsAround(found);
    const wrong = this.#limits.find(({ name, lease, mins }) => (lease || mins.length > 0) && used.includes(name));
    const [what, field] = wrong?.lease ? ["is never lent", "lease"] : ["has one number for all", "limit_from"];
    if (wrong) throw item.invalid(`what is asked first or tried ${what}; delete ${field} from the limit "${wrong.name}"`);
    return found;
  }

  warnOfUnusedLimits(limits: FileValue, stores: readonly StoreRules[]): void {
    const around = stores.flatMap(limitsAround);
    const used = new Set([...around, ...this.rules.flatMap((rule) => rule.limits.map((place) => this.#limits[place]!.name))]);
    limits.entries((name, limit) => {
      if (!used.has(name)) this.warnings.push(limit.message(`no rule has the limit "${name}"; add it to one or delete it`));
    });
  }

  #own(item: FileValue): string {
    const name = item.checkedName("name", item.text);
    const first = this.#names.get(name);
    if (first !== undefined) throw item.wrong(name, `is the name of rules[${first}] too; write another`);
    return name;
  }

  /** The name of a rule that has none: its methods and paths, such as `POST /login`. */
  #unnamed(item: FileValue): string {
    const name = short(patternOf(item, this.#ignoresCase));
    let free = name;
    for (let nth = 2; this.#names.has(free); nth++) free = `${name} (${nth})`;
    return free;
  }

  /** The place of the limit with this name. `item` is where it is written. */
  #place(item: FileValue, name: string): number {
    const known = this.#limits.map((limit) => limit.name);
    const place = known.indexOf(name);
    if (place >= 0) return place;
    throw item.wrong(name, `is not a limit; ${known.length > 0 ? suggestion(name, known) : "the file has none"}`);
  }

  /** The policies of several limits, without a tier and for each. */
  #policies(limits: readonly number[]): readonly (RulesPolicy | undefined)[] {
    const known = this.#joined.get(limits.join());
    if (known) return known;
    const joined = [undefined, ...this.#tiers].map((_, tier) => {
      const limited = limits.flatMap((place) => this.#limits[place]!.policies[tier] ?? []);
      return limited.length > 0 ? RulesPolicy.joined(limited) : undefined;
    });
    this.#joined.set(limits.join(), joined);
    return joined;
  }

  /** The lease of a rule's limit, if it has one. */
  #lease(limits: readonly number[], estimate: number | undefined): Lease | undefined {
    const leased = limits.map((place) => this.#limits[place]!).find(({ lease }) => lease);
    if (!leased || (limits.length === 1 && estimate === undefined)) return leased?.lease;
    const why =
      limits.length > 1 ? "limits that decide together cannot be lent; write a rule with this limit alone" : "an estimate is never lent; write cost";
    throw new TidegateError("invalid", `${why}, or delete lease from the limit "${leased.name}"`);
  }

  /** Warns of rules for the same hosts and paths, of which one hides the other or only their order decides. */
  #warnOfOverlaps(item: FileValue, rule: Rule): void {
    const { name, pattern } = rule;
    const place = identityOf(pattern);
    const alike = this.#alike.get(place) ?? [];
    const warn = (what: string) => void this.warnings.push(item.message(what));
    const hiding = alike.find((known) => covers(known.pattern, pattern) && precedes(known.pattern, pattern));
    if (hiding) return warn(`no request reaches ${name}, because ${hiding.name} matches all of them first; delete it or move it up`);
    for (const { name: first, pattern: known } of alike) {
      if (isUnorderedWith(known, pattern)) warn(`${first} and ${name} match some of the same requests, and ${first} applies because it comes first`);
    }
    this.#alike.set(place, alike);
    alike.push(rule);
  }
}
