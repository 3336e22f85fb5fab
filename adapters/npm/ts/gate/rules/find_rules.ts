// What the rules have for a request: those that match it, and what they are together. A tier is its place, or undefined.

import { TidegateError } from "../../error.js";
import { RulesPolicy } from "../rules_policy.js";
import { type Matched, Matcher } from "./matcher.js";
import { type Escapes, inLowerCase, readings } from "./path.js";
import type { Rule, Rules } from "./rules.js";

/** The most joined policies that are remembered: a client chooses the path. */
const JOINED_MAX = 1_024;

/** The policies of rules that apply together, by the places of their limits and of the tier. */
const joined = new WeakMap<Rules, Map<string, RulesPolicy | undefined>>();

/** The rules without upper and lower case, and whether they differ by it. */
const withoutCase = new WeakMap<Rules, { readonly matcher: Matcher; readonly differs: boolean }>();

/** The rules that apply to a request: one, unless readings of its paths have different ones. That of the first reading comes first. */
export function appliedTo(rules: Rules, request: Matched, paths: readonly string[]): Rule[] {
  return found(rules, request, paths, true);
}

/** All rules that match a request in some reading of its paths: those of the normal form first, most specific first. */
export function matching(rules: Rules, request: Matched, paths: readonly string[]): Rule[] {
  return found(rules, request, paths, false);
}

function found(rules: Rules, request: Matched, paths: readonly string[], isFirst: boolean): Rule[] {
  const found: Rule[] = [];
  const isExempt = rules.exemptsPreflights && request.method === "OPTIONS" && request.has("origin") && request.has("access-control-request-method");
  const add = (place: number) => {
    const rule = rules.rules[place]!;
    if (isExempt && !rule.pattern.methods.includes("OPTIONS")) return false;
    if (!found.includes(rule)) found.push(rule);
    return isFirst;
  };
  const other = request.ignoresCase && !rules.ignoresCase ? ignoringCase(rules) : undefined;
  const visit = (reading: readonly string[], escapes: Escapes) => {
    const lower = rules.ignoresCase || other ? reading.map((text) => inLowerCase(text, escapes)) : reading;
    for (const hosts of rules.matcher.of(escapes)) hosts.visit(request, rules.ignoresCase ? lower : reading, add);
    if (other && (other.differs || lower.some((text, nth) => text !== reading[nth]))) {
      for (const hosts of other.matcher.of(escapes)) hosts.visit(request, lower, add);
    }
    return false;
  };
  const { reach } = (other ?? rules).matcher;
  for (const path of paths) readings(path, reach, visit);
  return found;
}

/** The rules of a file that does not ignore case, for hosts whose routes do. */
function ignoringCase(rules: Rules): { readonly matcher: Matcher; readonly differs: boolean } {
  let known = withoutCase.get(rules);
  if (!known) {
    let differs = false;
    const lower = (text: string, escapes: Escapes) => {
      const other = inLowerCase(text, escapes);
      differs ||= other !== text;
      return other;
    };
    const patterns = rules.rules.map(({ pattern }) => {
      const { segments, written, isPrefix } = pattern.path;
      const others = segments.map((segment) => (segment === undefined ? undefined : lower(segment, "normal")));
      return { ...pattern, path: { segments: others, written: written.map((segment) => lower(segment, "kept")), isPrefix } };
    });
    known = { matcher: new Matcher(patterns), differs };
    withoutCase.set(rules, known);
  }
  return known;
}

/** The policy of a rule for a tier. */
export function policyOf(rule: Rule, tier: number | undefined): RulesPolicy | undefined {
  return rule.policies[tier === undefined ? 0 : tier + 1];
}

/** The rules that limit a tier. */
export function limitingOf(rules: readonly Rule[], tier: number | undefined): Rule[] {
  return rules.filter((rule) => policyOf(rule, tier));
}

/** The highest cost of the rules that limit a tier. */
export function costOf(applied: readonly Rule[], tier: number | undefined): number {
  const costs = limitingOf(applied, tier).map(({ cost }) => cost);
  return costs.length > 0 ? Math.max(...costs) : applied[0]!.cost;
}

/** Whether a store failure admits: if all rules that limit a tier say so. */
export function opens(applied: readonly Rule[], tier: number | undefined): boolean {
  return limitingOf(applied, tier).every(({ opensOnFailure }) => opensOnFailure);
}

/**
 * The policy of all limits for a tier, each once. Undefined if there is none. Throws if no policy can be of all of them: a store decides by a
 * limit that it lends alone.
 */
export function policyFor(rules: Rules, applied: readonly Rule[], tier: number | undefined): RulesPolicy | undefined {
  if (applied.length === 1) return policyOf(applied[0]!, tier);
  if (applied.some(({ lease }) => lease)) throw new TidegateError("unsupported", "a limit with a lease does not decide together with others");
  const limits = [...new Set(applied.flatMap((rule) => rule.limits))];
  const all = applied.find((rule) => rule.limits.length === limits.length);
  if (all) return policyOf(all, tier);
  const known = joined.get(rules) ?? new Map<string, RulesPolicy | undefined>();
  joined.set(rules, known);
  const place = tier === undefined ? 0 : tier + 1;
  const name = `${place}:${limits.join()}`;
  if (!known.has(name)) {
    const policies = limits.flatMap((limit) => rules.limits[limit]!.policies[place] ?? []);
    const policy = policies.length > 0 ? RulesPolicy.joined(policies) : undefined;
    if (known.size >= JOINED_MAX) known.clear();
    known.set(name, policy);
  }
  return known.get(name);
}
