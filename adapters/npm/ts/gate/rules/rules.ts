import type { Look } from "../../core/response.js";
import type { Lease } from "../../question.js";
import type { RulesPolicy } from "../rules_policy.js";
import { DIMENSIONS } from "./dimension_names.js";
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
  /** The policies of each limit, as in a rule. */
  readonly limits: readonly (readonly (RulesPolicy | undefined)[])[];
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
}

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
