import { UNKNOWN } from "../decision_numbers.js";
import { invalid } from "../error.js";
import { shown } from "../fields.js";
import type { Rule } from "./algorithms/algorithm.js";

/** The most quotas of a policy. */
const QUOTAS_MAX = 8;

/** A quota, as the options give it. */
export interface ReadyQuota {
  /** The place of its algorithm in `ALGORITHMS`. */
  algorithm: number;
  /** The place of the numbers, for errors about them. */
  place: string;
  /** The limit, the capacity, or a penalty's cap. */
  amount: number;
  /** The window, the bucket's period, the lifetime of a slot, or a penalty's base. */
  span: number;
  /** The refill, a penalty's factor, or 1 if a concurrency limit returns the cost. */
  refill: number;
  name: string | undefined;
  by: string | undefined;
  /** The windows of a calendar. The refill is then the third number of `CalendarWindow`. */
  calendar?: Calendar | undefined;
}

/** The windows of a calendar. Only who uses one loads it. */
export interface Calendar {
  /** A rule with these numbers, in any window. Throws what is wrong with them. */
  rule(ready: ReadyQuota, place: string): Rule;
  /** The same policy in the windows of an instant. */
  at(policy: Policy, now: number): Policy;
  /** A rule in words. */
  described(rule: Rule): string;
}

/** A policy, as the options give it. */
export interface ReadyPolicy {
  name: string;
  quotas: readonly ReadyQuota[];
  chargeDenied: boolean;
  groupBy: string | undefined;
  /** If a gate made the policy: the scope of each quota, separated by commas, the place of the group, and where rows are. */
  scopes: string | undefined;
  groupAt: number;
  placeByKey: boolean;
}

/** Makes the algorithm of a quota that a store can count by. Throws what is wrong with its numbers, which are at a place of the options. */
export type MakeRule = (ready: ReadyQuota, place: string) => Rule;

export interface Quota {
  name: string;
  /** The name of its dimension. */
  by: string;
  rule: Rule;
  calendar: Calendar | undefined;
}

/** The quotas that count by one key. */
export interface Dimension {
  name: string;
  /** What its keys begin with at a store. A stored state keeps its meaning only while it stays the same. */
  id: string;
  /** Its quotas are those from `first` to before `end`. */
  first: number;
  end: number;
}

/** One to eight quotas that are decided in one step. */
export class Policy {
  /** What makes the same policy. */
  readonly parts: ReadyPolicy;
  /** The same text for equal policies. */
  readonly text: string;
  readonly name: string;
  /** Those of each dimension side by side. */
  readonly quotas: readonly Quota[];
  readonly names: readonly string[];
  readonly dimensions: readonly Dimension[];
  /** The dimension whose key selects where the others are counted. */
  readonly group: Dimension | undefined;
  readonly placeByKey: boolean;
  readonly chargeDenied: boolean;
  readonly holdsSlots: boolean;
  /** Whether a quota can block its key by hand. */
  readonly hasBlocks: boolean;
  /** The only quota, if it admits by a count and charges what it admits. */
  readonly sole: Rule | undefined;
  /** The longest lifetime of a slot, and how long a state can matter, in milliseconds. */
  readonly longestSlot: number;
  readonly retention: number;
  /** The numbers of its quotas in a decision that does not tell what remains. */
  readonly uncounted: readonly number[];
  /** Those of a quota with windows of a calendar, if it has one. Then it decides only as `current` returns it. */
  readonly calendar: Calendar | undefined;
  /** Whether a gate made it, so that all its keys are keys already. */
  readonly isOfGate: boolean;
  readonly id: string;

  /** Throws what is wrong with the options. */
  constructor({ name, quotas, chargeDenied, groupBy, scopes, groupAt, placeByKey }: ReadyPolicy, makeRule: MakeRule) {
    this.parts = { name, quotas, chargeDenied, groupBy, scopes, groupAt, placeByKey };
    this.text = JSON.stringify(this.parts);
    const isOfGate = scopes !== undefined;
    const read = quotas.map((ready, nth) => quota(ready, `policy.quotas[${nth}].`, isOfGate, makeRule));
    this.name = isOfGate ? name : checkedName("policy.name", name);
    this.quotas = isOfGate ? (read as Quota[]) : placed(read, name);
    this.names = this.quotas.map(({ name }) => name);
    const given = scopes?.split(",");
    const scopeOf = (nth: number) => given?.[nth] ?? (this.quotas[nth]!.by ? `${name}@${this.quotas[nth]!.by}` : name);
    this.dimensions = dimensions(this.quotas, scopeOf);
    this.group = groupBy === undefined ? this.dimensions[groupAt] : this.dimensions.find((dimension) => dimension.name === groupBy);
    if (groupBy !== undefined && !this.group) {
      throw invalid("policy.groupBy", `no quota counts by ${shown(groupBy)}; write the dimension of one`);
    }
    this.placeByKey = placeByKey;
    this.chargeDenied = chargeDenied;
    const rules = this.quotas.map(({ rule }) => rule);
    this.longestSlot = Math.max(...rules.map((rule) => (rule.code === "cc" ? rule.unit : 0)));
    this.holdsSlots = this.longestSlot > 0;
    this.hasBlocks = rules.some(blocks);
    this.sole = rules.length === 1 && !chargeDenied && !this.holdsSlots && !this.hasBlocks ? rules[0] : undefined;
    this.retention = Math.max(...rules.map((rule) => rule.retention));
    this.uncounted = rules.flatMap(({ limit }) => [limit, UNKNOWN, UNKNOWN]);
    this.calendar = this.quotas.find(({ calendar }) => calendar)?.calendar;
    this.isOfGate = isOfGate;
    this.id = this.dimensions.map(({ id }) => id).join("+");
  }
}

/** A policy as it counts at an instant: in the windows of its calendars. */
export function current(policy: Policy, now: number): Policy {
  return policy.calendar?.at(policy, now) ?? policy;
}

/** The runs of quotas with one scope. */
function dimensions(quotas: readonly Quota[], scopeOf: (nth: number) => string): Dimension[] {
  const found: Dimension[] = [];
  let scope: string | undefined;
  quotas.forEach(({ by, rule }, nth) => {
    const unit = rule.shape;
    const last = found.at(-1);
    if (last && scopeOf(nth) === scope) {
      last.id += `.${unit}`;
      last.end += 1;
    } else {
      scope = scopeOf(nth);
      found.push({ name: by, id: `${scope}:${unit}`, first: nth, end: nth + 1 });
    }
  });
  return found;
}

type Unplaced = Omit<Quota, "name"> & { name: string | undefined };

/** Names the quotas, checks them beside each other, and puts those of each dimension side by side. */
function placed(quotas: readonly Unplaced[], name: string): Quota[] {
  if (quotas.length === 0 || quotas.length > QUOTAS_MAX) {
    throw invalid("policy.quotas", `${quotas.length} is out of range; write 1 to ${QUOTAS_MAX} quotas`);
  }
  const named = quotas.map((quota, nth) => ({ ...quota, name: quota.name ?? (quotas.length === 1 ? name : `${name}-${nth + 1}`) }));
  const order: Quota[] = [];
  named.forEach((quota, nth) => {
    const first = named.findIndex((other) => other.name === quota.name);
    if (first < nth) throw invalid(`policy.quotas[${nth}].name`, `"${quota.name}" is the name of quotas[${first}] already; write another`);
    fitsBeside(named, nth);
    const last = order.map(({ by }) => by).lastIndexOf(quota.by);
    const isLast = last >= 0 && !blocks(order[last]!.rule);
    order.splice(returnsCost(quota) ? 0 : last < 0 ? order.length : last + Number(isLast), 0, quota);
  });
  return order;
}

function fitsBeside(quotas: readonly Quota[], nth: number): void {
  const { by, rule } = quotas[nth]!;
  const [path, before, beside] = [`policy.quotas[${nth}]`, quotas.slice(0, nth), quotas.filter((other) => other.by === by)];
  if (returnsCost(quotas[nth]!)) {
    const first = before.findIndex(returnsCost);
    const place = `${path}.concurrency.returnsCost`;
    if (first >= 0) throw invalid(place, `quotas[${first}] returns the cost already; leave this out`);
    // A slot does not remember its request's keys of other dimensions.
    if (beside.length < quotas.length) throw invalid(place, "the policy has several dimensions; leave this out");
  }
  if (!blocks(rule)) return;
  if (rule.unit > 0 && beside.every((other) => blocks(other.rule))) {
    throw invalid(path, "a penalty counts the denials of other quotas, and its dimension has none; write one");
  }
  const first = before.find((other) => other.by === by && blocks(other.rule));
  if (first) throw invalid(path, `its dimension has a ${first.rule.name} already; leave one out: a penalty also blocks by hand`);
}

function returnsCost({ rule }: Pick<Quota, "rule">): boolean {
  return rule.code === "cc" && rule.last === 1;
}

/** Whether a rule does not count, but blocks. */
export function blocks({ code }: Rule): boolean {
  return code === "pn";
}

/** A quota. If `made`, a policy gave it its name. */
function quota(ready: ReadyQuota, place: string, made: boolean, makeRule: MakeRule): Unplaced {
  const rule = makeRule(ready, place);
  const { name, by, calendar } = ready;
  if (name !== undefined && !made) checkedName(`${place}name`, name);
  // That of a rules file may be made of several, with what no name has between them.
  if (by !== undefined) checkedName(`${place}by`, by.replaceAll("+", "."));
  return { name, by: by ?? "", rule, calendar };
}

export function checkedName(place: string, name: string): string {
  if (/^[\w.-]{1,32}$/.test(name)) return name;
  throw invalid(place, `${shown(name)} cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ .`);
}
