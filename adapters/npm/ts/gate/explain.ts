import { written } from "../core/address.js";
import type { Rule as Algorithm } from "../core/algorithms/algorithm.js";
import { current } from "../core/policy.js";
import type { TidegateError } from "../error.js";
import type { Lease } from "../question.js";
import type { Facts } from "./request_facts.js";
import { costOf, matching, opens, policyFor } from "./rules/find_rules.js";
import { textOf } from "./rules/pattern.js";
import type { Rule, Rules } from "./rules/rules.js";
import { described as aroundOf } from "./rules/store_rules.js";
import type { RulesPolicy } from "./rules_policy.js";
import type { Sender } from "./sender.js";

/**
 * Which rules, keys and limits apply to a request, and why, for people. `applied` are the rules, `first` is the name of the first store, and
 * `unless` is when a store failure has another effect.
 */
export function explained(rules: Rules, applied: readonly Rule[], facts: Facts, sender: Sender, first: string | undefined, unless = ""): string {
  const [rule, ...also] = applied;
  if (!rule) return "rule     none matches: not limited\n";
  const named = ({ name, pattern }: Rule) => `${name}: ${textOf(pattern)}`;
  const lines = [
    `rule     ${named(rule)}`,
    ...also.map((other) => `         and, as the path can be read so, ${named(other)}`),
    ...othersOf(rules, applied, facts).map((other) => `         more specific than ${named(other)}`),
    senderLine(rules, sender),
  ];
  const done = (...more: readonly string[]) => [...lines, ...more, ""].join("\n");
  const [denied, allowed] = [rules.denied, rules.allowed].map((list) => sender.entryOf(list));
  if (denied !== undefined) return done(`list     deny has ${denied}: refused with a 403`);
  if (typeof sender.claims === "string") {
    const isRefused = applied.some(({ refusesInvalidTokens }) => refusesInvalidTokens);
    lines.push(`token    invalid, because ${sender.claims}: ${isRefused ? "refused with a 401" : "ignored"}`);
    if (isRefused) return done();
  }
  if (allowed !== undefined) return done(`list     allow has ${allowed}: not limited`);
  const challenge = applied.find(({ challenge }) => challenge !== undefined)?.challenge;
  if (challenge !== undefined) return done(`challenge at ${challenge}: refused with a 403`);
  let policy: RulesPolicy | undefined;
  try {
    policy = policyFor(rules, applied, sender.tier);
  } catch (thrown) {
    return done(`limit    those of each rule, one after another: ${(thrown as TidegateError).message}`);
  }
  if (!policy) return done("limit    none");
  const cost = `cost     ${facts.options.cost ?? costOf(applied, sender.tier)}`;
  const numbers = rules.numbers?.explain(policy, sender);
  if (numbers?.error) return done(cost, `limit    unknown: ${numbers.error.message}: refused with a 503`);
  const { quotas, dimensions } = current(numbers?.policy ?? policy, facts.now);
  const around = rules.stores.find(({ name }) => name === (rule.store ?? first));
  const [lease, fallback] = [rule.lease, around?.fallback];
  return done(
    cost,
    ...dimensions.flatMap(({ name, first, end }) =>
      quotas.slice(first, end).map((quota, nth) => {
        const from = numbers?.from.get(first + nth) ?? "";
        return `limit    ${quota.name}: ${quota.part?.described?.(quota.rule) ?? described(quota.rule)}, by ${keyLine(sender, name)}${from}`;
      }),
    ),
    `store    ${rule.store ?? "the first"}${around ? aroundOf(around) : ""}`,
    ...(lease ? [`lease    ${boundsOf(lease)}`] : []),
    `failure  ${fallback ? `${fallback.store} decides for ${fallback.atMostMs} ms, then ` : ""}${opens(applied, sender.tier) ? "open: not limited" : "closed: a 503"} while the store is down${unless}`,
  );
}

/** The rules that match a request too, but are less specific. */
export function othersOf(rules: Rules, applied: readonly Rule[], facts: Facts): Rule[] {
  return matching(rules, facts, facts.paths).filter((other) => !applied.includes(other));
}

function senderLine(rules: Rules, sender: Sender): string {
  const { verified, verifiedBy, client, tier } = sender;
  const tierName = tier === undefined ? "" : `, tier ${rules.tiers[tier]}`;
  if (verified !== undefined) return `sender   ${verified}, ${verifiedBy}${tierName}`;
  return `sender   ${client?.name === undefined ? "unknown: the platform reports no address" : written(client.address)}${tierName}`;
}

function keyLine(sender: Sender, dimension: string): string {
  const name = dimension || "sender";
  try {
    return `${name} = ${sender.key(dimension)}`;
  } catch (thrown) {
    return `${name}: ${(thrown as TidegateError).message}`;
  }
}

/** Such as `at most 50 units, for at most 60000 ms`. */
export function boundsOf({ slice, lifetimeMs, grace }: Lease): string {
  const more = grace > 0 ? `, and ${grace} units before the first answer; each process or isolate may exceed the limit by so many` : "";
  return `at most ${slice} units, for at most ${lifetimeMs} ms${more}`;
}

/** The algorithm and the numbers of a quota. */
function described({ name, code, limit, unit, amount, last }: Algorithm): string {
  const inUnit = (ms: number) => (ms % 1_000 === 0 ? `${ms / 1_000} s` : `${ms} ms`);
  const span = inUnit(unit);
  if (code === "pn" && unit === 0) return `${name} by hand, of at most ${inUnit(amount)}`;
  if (code === "pn") return `${name} of ${span}, times ${last} for each further violation, up to ${inUnit(amount)}`;
  const start = `${name} of ${limit}`;
  if (name.endsWith("_bucket")) return `${start}, ${last} in ${span}`;
  return name === "concurrency" ? `${start}, each for at most ${span}` : `${start} in ${span}`;
}
