import type { Decision } from "../../core/decide.js";
import type { ReadyQuota } from "../../core/policy.js";
import type { Look } from "../../core/response_look.js";
import type { TidegateError } from "../../error.js";
import type { Lease, Question } from "../../question.js";
import type { RulesPolicy } from "../rules_policy.js";
import { DIMENSIONS } from "./dimension_names.js";
import type { FileValue } from "./file_value.js";
import type { Node } from "./json.js";
import type { List } from "./lists.js";
import type { Matcher } from "./matcher.js";
import type { Pattern } from "./pattern.js";
import type { StoreRules } from "./store_rules.js";
import type { TokenRules } from "./token_rules.js";

/** A rule of a file. */
export interface Rule {
  readonly name: string;
  readonly pattern: Pattern;
  /** What a request costs, unless the request says so itself. */
  readonly cost: number;
  /** What a request is charged until its cost is known and settled. */
  readonly estimate: number | undefined;
  /** The name of the store that counts. Undefined for the gate's first store. */
  readonly store: string | undefined;
  readonly opensOnFailure: boolean;
  readonly settleWithinMs: number | undefined;
  readonly lease: Lease | undefined;
  readonly refusesInvalidTokens: boolean;
  /** The address of the challenge that requests have to pass first. */
  readonly challenge: string | undefined;
  /** The places of its limits in `Rules.limits`. */
  readonly limits: readonly number[];
  /** For requests without a tier, then for each tier. Undefined if it is unlimited. */
  readonly policies: readonly (RulesPolicy | undefined)[];
}

/** The rules of a gate, as they are compiled from a file. */
export interface Rules {
  readonly matcher: Matcher;
  readonly ignoresCase: boolean;
  /** Whether only rules for `OPTIONS` apply to a CORS preflight. */
  readonly exemptsPreflights: boolean;
  readonly rules: readonly Rule[];
  /** Those whose keys the application gives. */
  readonly dimensions: readonly string[];
  readonly limits: readonly Limit[];
  /** Sorted. */
  readonly tiers: readonly string[];
  readonly apiKeyHeader: string | undefined;
  /** The place of each valid key's tier, if it has one, by the key. */
  readonly apiKeys: ReadonlyMap<string, number | undefined>;
  readonly tokens: TokenRules | undefined;
  /** What is around the stores. */
  readonly stores: readonly StoreRules[];
  readonly responses: Responses;
  readonly allowed: List;
  readonly denied: List;
  /** What is probably a mistake, each with its position. */
  readonly warnings: readonly string[];
  /** What gives limits other numbers than the file's. Undefined if the gate takes none. */
  readonly numbers: LimitNumbers | undefined;
  /** The table of prices, which its reader checks. */
  readonly prices: FileValue | undefined;
  /** At which parts of limits decisions warn. Undefined if the gate warns of nothing. */
  readonly thresholds: Thresholds | undefined;
}

/** A limit: the policy without a tier, then those of all tiers. Undefined if a tier is unlimited. */
export interface Limit {
  readonly name: string;
  readonly policies: readonly (RulesPolicy | undefined)[];
  readonly lease: Lease | undefined;
  /** The least numbers of its quotas that take others than the file's. */
  readonly mins: readonly number[];
}

/** The sender of a request, as far as its numbers depend on it. */
export interface Counted {
  readonly tier: number | undefined;
  readonly options: { readonly limits?: Readonly<Record<string, number | undefined>> | undefined };
  key(dimension: string): string;
  claim(name: string): Node | undefined;
}

/** What applies to a request, for people. */
export interface ExplainedNumbers {
  readonly policy: RulesPolicy;
  /** Where the number of a quota comes from, by its place, such as `, by an override`. */
  readonly from: ReadonlyMap<number, string>;
  /** Why nothing applies. */
  readonly error?: TidegateError;
}

/** The numbers of one file's limits. */
export interface LimitNumbers {
  /** Reads `limit_from` of the quotas in a table, and returns the least numbers that may apply. */
  take(table: FileValue, policy: RulesPolicy, tier: number, hasTokens: boolean): number[];
  /** Reads the table `overrides` of the rules file. */
  override(table: FileValue, rules: Rules): void;
  /** Reads the file that has nothing but overrides. */
  reload(root: FileValue, rules: Rules): void;
  /** Fits the rules to their stores: of those in `fixed`, the platform has the numbers. Throws if a request may have another. */
  fit(rules: Rules, fixed: readonly Rule[]): void;
  /** Throws unless each number of the application is one that a limit takes. */
  check(given: unknown): void;
  /** A policy with the numbers that apply to a request. Throws if one cannot be read. */
  policy(policy: RulesPolicy, sender: Counted): RulesPolicy;
  explain(policy: RulesPolicy, sender: Counted): ExplainedNumbers;
}

/** Makes those of a file. `before` are those that it replaces, whose file of overrides stays. */
export type MakeLimitNumbers = (before?: LimitNumbers) => LimitNumbers;

/** Reads the fields of a calendar or a balance: a quota with this limit, in the calendar's windows, or the balance. */
export type ReadPart = ((item: FileValue, quota: ReadyQuota) => ReadyQuota) & { readonly fields: readonly string[] };

/** What was asked for a decision. */
export interface Charged {
  readonly rule: string;
  readonly check: Question;
  /** The place of the sender's tier. */
  readonly tier: number | undefined;
}

/** The parts of one file's limits at which decisions warn. */
export interface Thresholds {
  /** Throws what is wrong with `warn_at` of a quota, if it has that. */
  read(quota: FileValue): void;
  /** Takes `warn_at` of the quotas in a table. Throws if the limit cannot tell what it needs. */
  take(table: FileValue, policy: RulesPolicy, tier: number): void;
  /** Throws if a limit has any, which is leased here. */
  lend(limit: string, item: FileValue): void;
  /** Throws if a limit that is asked first or tried has any. */
  around(stores: readonly StoreRules[], table: FileValue | undefined): void;
  /** Whether a limit of a rule has any. */
  has(rule: Rule): boolean;
  /**
   * Tells which a charge has crossed, and returns the highest that is reached, or 0. `units` are the cost of a check, or by how much a settlement is more
   * than its estimate.
   */
  charged(asked: Charged, decision: Decision, units: number, isSettled: boolean, by: { hash(key: string): string }): number;
}

/** Makes those of a file. */
export type MakeThresholds = () => Thresholds;

/** How responses look. */
export interface Responses extends Look {
  /** The longest time that is added to `Retry-After`, in milliseconds. */
  readonly spreadMs: number;
}

/** All dimensions that have a key: the gate's own, the tokens' claims and the application's. */
export function knownDimensions({ tokens, dimensions }: Pick<Rules, "tokens" | "dimensions">): string[] {
  return [...DIMENSIONS, ...(tokens?.keys ?? []).map(([dimension]) => dimension), ...dimensions];
}

/** The policies by which a store is asked to decide, as the rules have them. `isFirst` says that it is the gate's first. */
export function policiesOf({ rules, stores }: Rules, store: string, isFirst: boolean): RulesPolicy[] {
  const replaced = stores.filter(({ fallback }) => fallback?.store === store).map(({ name }) => name);
  const asks = (main: string | undefined) => (main === undefined ? isFirst || replaced.length > 0 : main === store || replaced.includes(main));
  const own = rules.filter((rule) => asks(rule.store)).flatMap(({ policies }) => policies.flatMap((policy) => policy ?? []));
  return [...own, ...stores.flatMap(({ near }) => (near?.store === store ? near.policy : []))];
}
