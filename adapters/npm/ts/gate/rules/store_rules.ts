import { TidegateError } from "../../error.js";
import { RulesPolicy } from "../rules_policy.js";
import { SENDER } from "./dimension_names.js";
import type { FileValue } from "./file_value.js";

/** What is around a store, an entry of the table `stores` of a rules file. */
export interface StoreRules {
  readonly name: string;
  readonly denyCache: CacheRules | undefined;
  /** The store that decides in place of this one, while it is down. */
  readonly fallback: FallbackRules | undefined;
  /** The store that is asked first, and by which policy. */
  readonly near: NearRules | undefined;
  readonly shadows: readonly ShadowRules[];
}

export interface CacheRules {
  readonly holdMs: number;
  readonly capacity: number;
}

export interface FallbackRules {
  readonly store: string;
  /** The part of each limit that is admitted without the store. */
  readonly percent: number;
  readonly atMostMs: number;
}

export interface NearRules {
  readonly store: string;
  readonly policy: RulesPolicy;
}

export interface ShadowRules {
  /** The name of the proposed limit. */
  readonly limit: string;
  /** By the name of the current limit. */
  readonly proposal: RulesPolicy;
}

/** A limit of a file by its name: its policy without a tier. `item` is where it is written. */
type FindLimit = (item: FileValue, name: string) => RulesPolicy;

/** Reads what is around the store with this name. */
export function storeOf(name: string, item: FileValue, limit: FindLimit): StoreRules {
  item.only(["deny_cache", "fallback", "near", "shadow"]);
  const shadows = item.field("shadow")?.entries((current, proposed) => shadowOf(current, proposed, limit)) ?? [];
  const [cache, fallback, near] = [item.field("deny_cache"), item.field("fallback"), item.field("near")];
  return {
    name,
    denyCache: cache && cacheOf(cache),
    fallback: fallback && fallbackOf(fallback, name),
    near: near && nearOf(near, name, limit),
    shadows,
  };
}

/** The names of the limits that it uses besides those of rules. */
export function limitsOf({ near, shadows }: StoreRules): string[] {
  return [...(near ? [near.policy.name] : []), ...shadows.map(({ limit }) => limit)];
}

/** Checks that the store that is asked first has a key of each request by this policy. */
export function checkNear({ name, near }: StoreRules, policy: RulesPolicy): void {
  if (!near) return;
  const by = near.policy.dimensions[0]!.name;
  if (counts(policy, by)) return;
  const message = `stores.${name}.near: "${near.policy.name}" counts by "${by || SENDER}", and no limit of this rule does`;
  throw new TidegateError("invalid", message);
}

/** Such as `, replaced by memory (10 % of each limit, for 300000 ms) while it is down, denials cached for 10000 ms`. */
export function described({ denyCache, fallback, near, shadows }: StoreRules): string {
  const parts = [
    fallback && `replaced by ${fallback.store} (${fallback.percent} % of each limit, for ${fallback.atMostMs} ms) while it is down`,
    denyCache && `denials cached for ${denyCache.holdMs} ms`,
    ...shadows.map(({ limit, proposal }) => `${limit} tried in place of ${proposal.name}`),
    near && `after ${near.store} by ${near.policy.name}`,
  ];
  return parts.map((part) => (part ? `, ${part}` : "")).join("");
}

function cacheOf(item: FileValue): CacheRules | undefined {
  if (item.isOn === undefined) item.only(["hold_ms", "capacity"]);
  const holdMs = item.numberIn("hold_ms", 1, 3_600_000) ?? 10_000;
  const capacity = item.numberIn("capacity", 1, 1_000_000) ?? 1_024;
  return item.isOn === false ? undefined : { holdMs, capacity };
}

function fallbackOf(item: FileValue, main: string): FallbackRules {
  const isName = item.node.text !== undefined;
  if (!isName) item.only(["store", "percent", "at_most_ms"]);
  const store = other(isName ? item : item.required("store"), main);
  return { store, percent: item.numberIn("percent", 1, 100) ?? 10, atMostMs: item.field("at_most_ms")?.number ?? 300_000 };
}

function nearOf(item: FileValue, main: string, limit: FindLimit): NearRules {
  item.only(["store", "limit"]);
  const [store, named] = [item.required("store"), item.required("limit")];
  const policy = limit(named, named.text);
  if (policy.dimensions.length > 1 || policy.holdsSlots) {
    throw named.invalid("a limit that is asked first counts by one key, and no requests at once");
  }
  return { store: other(store, main), policy };
}

function shadowOf(name: string, item: FileValue, limit: FindLimit): ShadowRules {
  const current = limit(item, name);
  const proposed = limit(item, item.text);
  const unknown = proposed.dimensions.find((dimension) => !counts(current, dimension.name));
  if (unknown) throw item.invalid(`it counts by "${unknown.name || SENDER}", and "${name}" does not`);
  const { parts } = proposed;
  const scopes = parts.quotas.map(({ by }) => (by ? `${name}@${by}` : name)).join();
  return { limit: item.text, proposal: new RulesPolicy({ ...parts, name, scopes }) };
}

function counts(policy: RulesPolicy, by: string): boolean {
  return policy.dimensions.some(({ name }) => name === by);
}

/** Another store than the one that it is for. */
function other(item: FileValue, main: string): string {
  if (item.text === main) throw item.wrong(main, "is the store itself; write another");
  return item.text;
}
