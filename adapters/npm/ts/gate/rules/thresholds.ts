// The parts of limits at which decisions warn, as core's `warn_at` and `gate/warning.rs` have them.

import { quietly } from "../../callback.js";
import type { Rule as QuotaRule } from "../../core/algorithms/algorithm.js";
import { LENGTHS, MINUTE } from "../../core/algorithms/calendar_window.js";
import { later } from "../../core/arithmetic.js";
import type { Decision } from "../../core/decide.js";
import { current } from "../../core/policy.js";
import { ALLOWED, AT, EACH, FROM_STORE, ORIGIN, QUOTAS, REPLAY, STATUS, UNKNOWN } from "../../decision_numbers.js";
import type { Keys } from "../../core/key.js";
import type { RulesPolicy } from "../rules_policy.js";
import type { FileValue } from "./file_value.js";
import type { Charged, Rule, Thresholds } from "./rules.js";
import { limitsOf, type StoreRules } from "./store_rules.js";

/** The most parts of a limit. */
const MOST = 8;

/**
 * A charge has taken a key from below a part of its limit to it, or beyond: one of those in `warn_at`. Each charge that crosses a part is one
 * warning. After a refund, a drained bucket or a new window, the next crossing is another.
 */
export interface Warning {
  /** When the request was checked, or its charge settled, in milliseconds since the epoch. */
  atMs: number;
  /** The name of the rule. */
  rule: string;
  /** The names of the rule's limits, joined by `+`. */
  policy: string;
  /** The part that is reached, in percent. */
  warning: number;
  /** The quota. */
  quota: string;
  /** A hash of the key that the quota counts by, that of the gate's events. */
  key: string;
  /** The quota's limit. */
  limit: number;
  /** How much of it is used. A debt counts as all. */
  used: number;
  /** When the window ends, for a fixed window: a key that reaches the same part in two windows has two ends. */
  windowEndMs?: number;
  /** Whether a settlement has charged it. */
  settled?: true;
  /** Whether this may have been told before: the settlement has ended in debt, which does not tell what was used before. */
  mayRepeat?: true;
}

/** Receives warnings. It is not awaited, and what it throws is ignored. */
export type WarningSink = (warning: Warning) => unknown;

export class FileThresholds implements Thresholds {
  readonly #sinks: readonly WarningSink[];
  /** The parts of each quota, by its limit, its tier and its name. */
  readonly #percents = new Map<string, readonly number[]>();
  readonly #limits = new Set<string>();
  readonly #ofPolicies = new WeakMap<RulesPolicy, readonly (readonly number[])[]>();

  constructor(sinks: readonly WarningSink[]) {
    this.#sinks = sinks;
  }

  read(item: FileValue): void {
    const list = item.field("warn_at");
    if (!list) return;
    const percents = list.each((percent) => percent);
    const numbers = percents.map((percent) => percent.number);
    const wrong = (what: string) => item.invalid(`warn_at: ${what}`);
    if (numbers.length === 0 || numbers.length > MOST) throw wrong(`${numbers.length} percents; write 1 to ${MOST}, such as [80, 100]`);
    numbers.forEach((number, nth) => {
      if (number < 1 || number > 100) throw wrong(`${percents[nth]!.node.bare} is out of range; write whole percents from 1 to 100`);
      const before = numbers[nth - 1] ?? 0;
      if (number <= before) throw wrong(`${number} comes after ${before}; write each once, ascending`);
    });
  }

  take(table: FileValue, policy: RulesPolicy, tier: number): void {
    const quotas = table.required("quotas").each((quota) => quota);
    quotas.forEach((quota, nth) => {
      const list = quota.field("warn_at");
      if (!list) return;
      const name = quota.field("name")?.text ?? (quotas.length === 1 ? policy.name : `${policy.name}-${nth + 1}`);
      if (policy.chargeDenied) throw table.invalid("charge_denied: a denial that is charged does not tell what was used before; delete it, or delete warn_at");
      if (policy.balance && policy.balance.adds(policy.quotas.find((quota) => quota.name === name)!.rule) > 0) {
        throw table.invalid("warn_at: a balance that covers a quota does not tell how much of a request that paid; delete warn_at, or covers");
      }
      this.#percents.set(nameOf(policy.name, tier, name), list.each((percent) => percent.number));
      this.#limits.add(policy.name);
    });
  }

  lend(limit: string, item: FileValue): void {
    if (this.#limits.has(limit) && item.isOn !== false) throw item.invalid("a decision from a loan tells no counts; delete lease, or delete warn_at");
  }

  around(stores: readonly StoreRules[], table: FileValue | undefined): void {
    for (const store of stores) {
      const limit = limitsOf(store).find((name) => this.#limits.has(name));
      if (limit !== undefined) throw table!.required(store.name).invalid(`what is asked first or tried warns of nothing; delete warn_at from the limit "${limit}"`);
    }
  }

  has({ policies }: Rule): boolean {
    return policies.some((policy) => policy?.parts.scopes!.split(",").some((scope) => this.#limits.has(scope.split("@")[0]!)));
  }

  /** Those of each quota of a policy, which is one for tiers with the same quotas. */
  #of(policy: RulesPolicy, tier: number | undefined): readonly (readonly number[])[] {
    const known = this.#ofPolicies.get(policy);
    if (known) return known;
    const scopes = policy.parts.scopes!.split(",");
    const place = tier === undefined ? 0 : tier + 1;
    const found = policy.quotas.map(({ name }, nth) => this.#percents.get(nameOf(scopes[nth]!.split("@")[0]!, place, name)) ?? []);
    this.#ofPolicies.set(policy, found);
    return found;
  }

  charged({ rule, check, tier }: Charged, decision: Decision, units: number, isSettled: boolean, by: { hash(key: string): string }): number {
    // Only a store's counts are of the whole limit.
    if (decision[ORIGIN] !== FROM_STORE || (isSettled && units <= 0)) return 0;
    const isAllowed = decision[STATUS] === ALLOWED;
    // A replay has charged nothing.
    const isCharged = decision[REPLAY] === 0 && (isSettled || isAllowed);
    let level = 0;
    this.#of(check.policy as RulesPolicy, tier).forEach((of, place) => {
      const [limit, remaining, resetAfter] = decision.slice(QUOTAS + EACH * place) as [number, number, number];
      if (of.length === 0 || remaining === UNKNOWN) return;
      const { name, by: dimension, rule: quota } = check.policy.quotas[place]!;
      const own = quota.name === "concurrency" ? Number(!isSettled && units > 0) : units;
      const used = Math.max(limit - remaining, 0);
      const before = Math.max(used - own, 0);
      for (const percent of of) {
        const needed = unitsOf(percent, limit);
        if (used < needed) return;
        level = Math.max(level, percent);
        if (!isCharged || before >= needed) continue;
        const warning: Warning = {
          atMs: check.now,
          rule,
          policy: check.policy.name,
          warning: percent,
          quota: name,
          key: by.hash((check.keys as Keys)[dimension]!),
          limit,
          used,
          ...windowEnd(current(check.policy, check.now).quotas[place]!.rule, decision[AT]!, resetAfter),
          ...(isSettled && { settled: true }),
          ...(remaining === 0 && !isAllowed && { mayRepeat: true }),
        };
        for (const sink of this.#sinks) quietly(() => sink(warning));
      }
    });
    return level;
  }
}

/** When the window of a decision ends, where that is known. */
function windowEnd({ name, unit }: QuotaRule, at: number, resetAfter: number): { windowEndMs?: number } {
  if (name === "fixed_window" && resetAfter !== UNKNOWN) return { windowEndMs: later(at, resetAfter) };
  const end = (Math.floor(unit / LENGTHS) + (unit % LENGTHS)) * MINUTE;
  return name === "calendar_window" && at < end ? { windowEndMs: end } : {};
}

function nameOf(limit: string, tier: number, quota: string): string {
  return `${limit} ${tier} ${quota}`;
}

/** The least number of used units that is this part of a limit: the part, rounded up. No product is larger than the limit times 1. */
function unitsOf(percent: number, limit: number): number {
  return Math.floor(limit / 100) * percent + Math.ceil(((limit % 100) * percent) / 100);
}
