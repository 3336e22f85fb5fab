import type { ZonedCalendar } from "../core/calendar.js";
import type { Part } from "../core/policy.js";
import type { Rule } from "../core/algorithms/algorithm.js";
import { PART_MARK } from "../gate/rules/dimension_names.js";
import type { RulesPolicy } from "../gate/rules_policy.js";

/** A policy as in a rules file, with the names of its quotas. */
export function policyOf({ name, chargeDenied, group, quotas }: RulesPolicy): object {
  return {
    name,
    ...(chargeDenied && { charge_denied: true }),
    ...(group && { group_by: written(group.name) }),
    quotas: quotas.map(({ name, by, rule, part }) => ({ algorithm: rule.name, ...(name && { name }), ...(by && { by: written(by) }), ...numbersOf(rule), ...calendarOf(part, rule) })),
  };
}

/** A dimension as a file has it: its name, or a list of the names that are joined in it. */
function written(dimension: string): string | string[] {
  return dimension.includes(PART_MARK) ? dimension.split(PART_MARK) : dimension;
}

/** The numbers of an algorithm. */
function numbersOf({ name, amount, unit, last }: Rule): object {
  switch (name) {
    case "token_bucket":
    case "leaky_bucket":
      return { capacity: amount, refill: last, per_ms: unit };
    case "concurrency":
      return { limit: amount, lifetime_ms: unit, ...(last === 1 && { returns_cost: true }) };
    case "penalty":
      return { base_ms: unit, factor: last, cap_ms: amount };
    case "block":
      return { cap_ms: amount };
    case "calendar_window":
      return { limit: amount };
    case "balance":
      return { max: amount, ...(last === 1 && { covers: true }) };
    default:
      return { limit: amount, window_ms: unit };
  }
}

/** The fields of a calendar. */
function calendarOf(part: Part | undefined, { carryOver }: Rule): object {
  if (!part?.at) return {};
  const { every, zone, anchor } = part as ZonedCalendar;
  return { every, zone, anchor, ...(carryOver > 0 && { carry_over: carryOver }) };
}
