import { anyRule } from "../core/algorithms/make_algorithm.js";
import { share as part } from "../core/arithmetic.js";
import { Policy, type ReadyPolicy, type ReadyQuota } from "../core/policy.js";
import { invalid } from "../error.js";

/** The algorithms, in the order of `ReadyQuota.algorithm`. */
export const ALGORITHMS = ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency", "penalty", "block", "calendar_window", "balance"];

export const BUCKETS = [ALGORITHMS.indexOf("token_bucket"), ALGORITHMS.indexOf("leaky_bucket")];
export const PENALTIES = [ALGORITHMS.indexOf("penalty"), ALGORITHMS.indexOf("block")];
export const CALENDAR_WINDOW = ALGORITHMS.indexOf("calendar_window");
export const BALANCE = ALGORITHMS.indexOf("balance");
const CONCURRENCY = ALGORITHMS.indexOf("concurrency");
const QUOTAS_MAX = 8;

/** The policy of a limit, or of several that decide together. */
export class RulesPolicy extends Policy {
  /** The same text for policies that differ in the number of a limit only: one limiter counts by all of them. */
  readonly shape: string;

  constructor(parts: ReadyPolicy, shape?: string) {
    super(parts, anyRule);
    this.shape = shape ?? this.text;
  }

  /** The policy of a limit. Throws what is wrong with it. */
  static ofLimit(name: string, quotas: readonly ReadyQuota[], chargeDenied: boolean, groupBy: string | undefined): RulesPolicy {
    const options = { name, quotas, chargeDenied, groupBy, scopes: undefined, groupAt: -1, placeByKey: false };
    const policy = new Policy(options, anyRule);
    const inOrder = policy.quotas.map(({ name, by, rule, part }) => {
      const [amount, span, refill] = [rule.amount, rule.unit, rule.last];
      return { algorithm: ALGORITHMS.indexOf(rule.name), place: "", amount, span, refill, name, by: by || undefined, part };
    });
    const scopes = inOrder.map(({ by }) => (by ? `${name}@${by}` : name)).join();
    const groupAt = policy.group ? policy.dimensions.indexOf(policy.group) : -1;
    return new RulesPolicy({ ...options, quotas: inOrder, groupBy: undefined, scopes, groupAt });
  }

  /** Joins policies into one that decides all their quotas in one step. Each keeps its own counts. Throws why they cannot be joined. */
  static joined([first, ...others]: readonly RulesPolicy[]): RulesPolicy {
    return others.reduce((joined, other) => joined.#and(other), first!);
  }

  #and(other: RulesPolicy): RulesPolicy {
    const [one, two] = [this.parts, other.parts];
    const names = `"${one.name}" and "${two.name}"`;
    const quotas = [...one.quotas, ...two.quotas];
    const wrong = (what: string) => invalid("policies", what);
    if (quotas.length > QUOTAS_MAX) throw wrong(`${names} have ${quotas.length} quotas; at most ${QUOTAS_MAX} decide together`);
    if (one.chargeDenied !== two.chargeDenied) throw wrong(`only one of ${names} charges denials; write charge_denied for both or neither`);
    if (this.group || other.group) throw wrong(`one of ${names} has a group; leave out group_by`);
    const twice = two.quotas.find(({ name }) => one.quotas.some((known) => known.name === name));
    if (twice) throw wrong(`two quotas are named "${twice.name}"; write different names`);
    if (quotas.some(({ algorithm, refill }) => algorithm === CONCURRENCY && refill === 1)) throw wrong("returns_cost needs a policy of its own; leave it out");
    if (this.balance) other.balance?.joins(names);
    const placeByKey = one.placeByKey && two.placeByKey;
    return new RulesPolicy({ ...one, name: `${one.name}+${two.name}`, quotas, scopes: `${one.scopes},${two.scopes}`, placeByKey });
  }

  /** The same policy, stored at a place that the key alone selects. A policy of several keys stays as it is. */
  get placed(): RulesPolicy {
    const { dimensions, placeByKey } = this;
    const isOfOneKey = dimensions.every(({ name }) => name === dimensions[0]!.name);
    return isOfOneKey && !placeByKey ? new RulesPolicy({ ...this.parts, placeByKey: true }) : this;
  }

  /** The same policy with counts of its own. */
  withOwnCounts(suffix: string): RulesPolicy {
    return new RulesPolicy({ ...this.parts, scopes: this.parts.scopes!.split(",").map((scope) => scope + suffix).join() });
  }
}

/** A policy with this percentage of its limits and rates, rounded down, but at least 1. Undefined if it has none. */
export function share({ parts, shape }: RulesPolicy, percent: number): RulesPolicy | undefined {
  try {
    return new RulesPolicy({ ...parts, quotas: parts.quotas.map((quota) => shareOf(quota, percent)) }, `${percent} % ${shape}`);
  } catch {
    return undefined;
  }
}

function shareOf(quota: ReadyQuota, percent: number): ReadyQuota {
  const { algorithm, span, refill } = quota;
  // What is granted is in the store, and a share of it would be nothing.
  if (PENALTIES.includes(algorithm) || algorithm === BALANCE) return quota;
  const amount = Math.max(part(quota.amount, percent, 100), 1);
  if (!BUCKETS.includes(algorithm)) return { ...quota, amount };
  const exact = { ...quota, amount, span: span * 100, refill: refill * percent };
  try {
    const { unit, last } = anyRule(exact, "");
    return { ...exact, span: unit, refill: last };
  } catch {
    // If the products of the exact rate are too large, one unit in a longer time.
    return { ...exact, span: Math.ceil(exact.span / exact.refill), refill: 1 };
  }
}
