import { MAX_UNITS } from "../../core/arithmetic.js";
import { canLend, LIFETIME_MAX, tooMuchGrace } from "../../core/lending/lender.js";
import type { Lease } from "../../question.js";
import { ALGORITHMS, RulesPolicy } from "../rules_policy.js";
import { PART_MARK, SENDER } from "./dimension_names.js";
import type { FileValue } from "./file_value.js";
import { type QuotaReaders, quotasOf } from "./quotas.js";
import { quoted } from "./quoted_text.js";
import { knownDimensions, type Limit, type Rules } from "./rules.js";
import { suggestion } from "./suggestion.js";

/** The names of all tiers, sorted. */
export function tiersOf(limits: FileValue): string[] {
  const names = limits.entries((_, limit) => limit.field("tiers")?.entries((tier) => tier) ?? []);
  return [...new Set(names.flat())].sort();
}

/** The limits of a file. `known` has all dimensions that there are, and what reads the fields of quotas. */
export function limitsOf(limits: FileValue, tiers: readonly string[], known: Pick<Rules, "tokens" | "dimensions"> & QuotaReaders): Limit[] {
  const { numbers, thresholds } = known;
  const by = (item: FileValue) => dimension(item, knownDimensions(known));
  return limits.entries((name, limit) => {
    limit.only(["quotas", "charge_denied", "group_by", "lease", "tiers"]);
    const chargeDenied = limit.has("charge_denied");
    const policy = (item: FileValue) => {
      const group = limit.field("group_by");
      const groupBy = group && by(group);
      const quotas = quotasOf(item, by, known);
      item.checkedName("name", name);
      return item.placing(() => RulesPolicy.ofLimit(name, quotas, chargeDenied, groupBy), inFile);
    };
    const mins: number[] = [];
    const taking = (item: FileValue, made: RulesPolicy, tier: number) => {
      thresholds?.take(item, made, tier);
      mins.push(...(numbers?.take(item, made, tier, known.tokens !== undefined) ?? []));
      return made;
    };
    const usual = taking(limit, policy(limit), 0);
    const own = tiers.map((tier, nth) => {
      const item = limit.field("tiers")?.field(tier);
      if (!item) return taking(limit, usual, nth + 1);
      item.only(["quotas", "unlimited"]);
      const isUnlimited = item.has("unlimited");
      if (isUnlimited === Boolean(item.field("quotas"))) throw item.invalid("write either quotas or unlimited = true");
      return isUnlimited ? undefined : taking(item, policy(item), nth + 1);
    });
    const policies = [usual, ...own];
    const lease = limit.field("lease");
    if (lease) thresholds?.lend(name, lease);
    return { name, policies, lease: lease && leaseOf(lease, policies, mins), mins };
  });
}

/** The dimension that a quota counts by, or a limit is grouped by: one, or the parts of a key that is made of several. Empty for the sender. */
function dimension(item: FileValue, known: readonly string[]): string {
  const parts: string[] = [];
  item.oneOrEach((item) => {
    const name = part(item, known);
    if (parts.includes(name)) throw item.wrong(name, "is written twice; write it once");
    parts.push(name);
  });
  const joined = parts.join(PART_MARK);
  if (!joined) throw item.invalid('an empty list; write one such as ["ip", "ja4"]');
  if (joined.length > 32) throw item.invalid(`by: the names have ${joined.length} characters when they are joined by +; shorten them to 32`);
  return joined === SENDER ? "" : joined;
}

/** One dimension by its name. */
function part(item: FileValue, known: readonly string[]): string {
  const name = item.text;
  if (known.includes(name)) return name;
  const or = `or declare it as one that the application gives: dimensions = [${quoted(name)}]`;
  throw item.wrong(name, `is not a dimension; ${suggestion(name, known)}, ${or}`);
}

/** A message about the options of a policy, with the names of a rules file. */
function inFile(message: string): string {
  return message.replace(/^policy\./, "").replace(/^(\S*?)(?:concurrency\.)?(returnsC|groupB)(?=\w+: )/, (_, start: string, name: string) => {
    return start + name.replace(/[A-Z]/, (letter) => `_${letter.toLowerCase()}`);
  });
}

/** The lease of a limit: `true`, `false`, or a table of the bounds. */
function leaseOf(item: FileValue, policies: readonly (RulesPolicy | undefined)[], mins: readonly number[]): Lease | undefined {
  const { isOn } = item;
  if (isOn === undefined) item.only(["slice", "lifetime_ms", "grace"]);
  const slice = item.numberIn("slice", 1, MAX_UNITS) ?? 50;
  const lifetimeMs = item.numberIn("lifetime_ms", 1, LIFETIME_MAX) ?? LIFETIME_MAX;
  const grace = item.numberIn("grace", 0, slice) ?? 0;
  if (isOn === false) return undefined;
  const refused = policies.find((policy) => policy && !canLend(policy));
  if (refused) throw item.invalid(`${unlendable(refused)}, or delete lease`);
  const wrong = tooMuchGrace(grace, policies, mins);
  if (wrong) throw item.invalid(wrong);
  return { slice, lifetimeMs, grace };
}

/** What of a policy cannot be lent, and what to write instead. */
function unlendable({ dimensions, quotas }: RulesPolicy): string {
  const lendable = [3, 0, 1].map((place) => ALGORITHMS[place]!);
  const other = quotas.find(({ rule }) => !lendable.includes(rule.name));
  if (other) return `${other.rule.name} cannot be lent; write ${lendable[0]}, ${lendable[1]} or ${lendable[2]}`;
  if (dimensions.length > 1) return "a policy of several keys cannot be lent; count all its quotas by one dimension";
  return "a policy that charges denials cannot be lent; delete charge_denied";
}
