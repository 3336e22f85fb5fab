import { UNKNOWN } from "../decision_numbers.js";
import { invalid } from "../error.js";
import { shown } from "../fields.js";
import type { Lot, Rule, State } from "./algorithms/algorithm.js";

/** The most quotas of a policy. */
export const QUOTAS_MAX = 8;

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
  /** The algorithm, if it is one that only who uses it loads. The refill of a calendar's windows is the third number of `CalendarWindow`. */
  part?: Part | undefined;
}

/** An algorithm that only who uses it loads. */
export interface Part {
  /** A rule with these numbers, in any window. Throws what is wrong with them. */
  rule(ready: ReadyQuota, place: string): Rule;
  /** The same policy in the windows of an instant. */
  at?(policy: Policy, now: number): Policy;
  /** A rule in words, unless its numbers say all. */
  described?(rule: Rule): string;
  /** What is done to it beside deciding, as a sentence. Who only decides refuses it. */
  readonly changes?: string;
}

/** The rule to which units can be granted: `core/algorithms/balance.ts`, which only who uses one loads. */
export interface Balance extends Rule {
  /** What stores need for it. */
  readonly parts: BalanceParts;
  /** Throws if its policy is joined with another one that has a balance. */
  joins(names: string): never;
  /** Throws if a store cannot grant. */
  needs(can: { readonly grant: boolean }): void;
  /** Throws if its policy has no answer to a question. */
  checks(question: { readonly kind: number; readonly cost: number }): void;
  /** Divides each request with the quota before this one, if this covers it. Its policy has these rules. */
  covers(rules: readonly Rule[]): void;
  /** How much it adds to the limit of a rule of its policy. Its own is no limit if it covers another one. */
  adds(rule: Rule): number;
  /** Adds to a decision what the balance pays, and which quota the response shows: the one that it covers as long as that admits anything. */
  tells(decision: number[], quotas: readonly Quota[], isFree: boolean): void;
  /** Notes in a decision what a server's balance has paid. Throws if that is not what it pays here, unless the answer is an earlier one. */
  agrees(decision: number[], answer: string): void;
  /** Notes what was paid of the charge that is settled next. */
  settles(paid: readonly Lot[] | undefined): void;
  /** The lots that paid the balance's part of an admitted request, from the states before it: those that expire first. */
  paid(quotas: readonly Quota[], before: readonly State[], decision: readonly number[]): Lot[];
  /** Adds units that count before an instant, after the debt is repaid. Lots that have expired are removed. Throws why it takes none. */
  grant(quotas: readonly Quota[], states: readonly State[], now: number, units: number, expires: number): void;
  /** The rows of its policy: those of its dimension are the quotas before it, itself, and the penalty after it. */
  rows(policy: Pick<Policy, "dimensions" | "quotas">): Dimension[];
  /** The place of its row among those of its policy. */
  row(policy: Pick<Policy, "rows" | "quotas">): number;
  /** Where the states of these keys are. The names of its own row and of its place have nothing of the quotas beside it. */
  storage(policy: Policy, keys: readonly string[]): Names;
}

/** What a grant is told by, in a question. */
interface Granting {
  readonly now: number;
  readonly cost: number;
  readonly extra: number;
  readonly expires: number;
}

/** What stores need for a policy with a balance. */
export interface BalanceParts {
  /** Adds the script of policies with a balance to those of Redis: see `built.d.ts`. */
  addScript(scripts: string[], sha1s: readonly string[][]): void;
  /** Changes the keys and the words of a question to Redis into those of a grant, or of a reset that leaves the balance. */
  adjust(question: Granting, rows: string[], words: string[]): void;
  /** The error that Redis has answered to a grant, if it is one. */
  refused(answered: string): unknown;
  /** Makes a grant unless its token is remembered at this place. Whether it is. Throws if the token is of a grant of other units. */
  once(place: object, token: string, question: Granting, make: () => void): boolean;
  /** Makes a question that of a grant. Throws what is wrong with it. */
  ask<Asked extends Granting & { readonly policy: Policy }>(question: Asked, units: unknown, options: unknown): Asked;
}

/** Where a store keeps the states of a question's keys. */
export interface Names {
  /** What the names of all begin with. Undefined if they have nothing in common. */
  place: string | undefined;
  /** The name of each row of the policy. */
  rows: readonly string[];
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
  part: Part | undefined;
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
  /** Those whose states are stored together: the dimensions, but a balance has a row of its own, and so has a penalty after it. */
  readonly rows: readonly Dimension[];
  /** The dimension whose key selects where the others are counted. */
  readonly group: Dimension | undefined;
  readonly placeByKey: boolean;
  readonly chargeDenied: boolean;
  readonly holdsSlots: boolean;
  /** Whether a quota can block its key by hand. */
  readonly hasBlocks: boolean;
  /** The only quota, if it admits by a count. */
  readonly sole: Rule | undefined;
  /** The longest lifetime of a slot, and how long a state can matter, in milliseconds. */
  readonly longestSlot: number;
  readonly retention: number;
  /** The numbers of its quotas in a decision that does not tell what remains. */
  readonly uncounted: readonly number[];
  /** The windows of a quota's calendar, if it has one. Then it decides only as `current` returns it. */
  readonly calendar: Part | undefined;
  /** The rule to which units can be granted, if it has one. */
  readonly balance: Balance | undefined;
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
    if (groupBy !== undefined && !this.group) throw noGroup(groupBy);
    this.placeByKey = placeByKey;
    this.chargeDenied = chargeDenied;
    const rules = this.quotas.map(({ rule }) => rule);
    this.longestSlot = Math.max(...rules.map((rule) => (rule.code === "cc" ? rule.unit : 0)));
    this.holdsSlots = this.longestSlot > 0;
    this.hasBlocks = rules.some(blocks);
    this.sole = rules.length === 1 && !rules[0]!.isHeld && !this.hasBlocks ? rules[0] : undefined;
    this.retention = Math.max(...rules.map((rule) => rule.retention));
    this.uncounted = rules.flatMap(({ limit }) => [limit, UNKNOWN, UNKNOWN]);
    this.calendar = this.quotas.find(({ part }) => part?.at)?.part;
    this.balance = rules.find(({ code }) => code === "ba") as Balance | undefined;
    this.balance?.covers(rules);
    this.rows = this.balance?.rows(this) ?? this.dimensions;
    this.isOfGate = isOfGate;
    this.id = this.dimensions.map(({ id }) => id).join("+");
  }
}

/**
 * A policy of one quota that counts, in less code. It has no field of those that say what a policy does beside counting. Its quota's
 * names were checked when they were read. Throws what is wrong with the rest, and `other` for another number of quotas.
 */
export function solePolicy(parts: ReadyPolicy, makeRule: MakeRule, other: (count: number) => unknown): Policy {
  const { name, quotas, chargeDenied, groupBy } = parts;
  const [rule] = quotas.map((ready, nth) => makeRule(ready, `policy.quotas[${nth}].`));
  checkedName("policy.name", name);
  const isCount = rule && quotas.length <= QUOTAS_MAX;
  if (isCount && groupBy !== undefined && quotas.every(({ by = "" }) => by !== groupBy)) throw noGroup(groupBy);
  if (!rule || quotas.length > 1) throw other(quotas.length);
  const { name: own = name, by = "", part } = quotas[0]!;
  const only = { name: own, by, rule, part };
  rule.fitsBeside?.([only], 0);
  const dimension = { name: by, id: `${by ? `${name}@${by}` : name}:${rule.shape}`, first: 0, end: 1 };
  const sole: Partial<Policy> = {
    parts,
    name,
    quotas: [only],
    names: [own],
    dimensions: [dimension],
    rows: [dimension],
    chargeDenied,
    holdsSlots: false,
    sole: rule,
    retention: rule.retention,
    uncounted: [rule.limit, UNKNOWN, UNKNOWN],
    calendar: part?.at && part,
    id: dimension.id,
  };
  return sole as Policy;
}

function noGroup(groupBy: string): unknown {
  return invalid("policy.groupBy", `no quota counts by ${shown(groupBy)}; write the dimension of one`);
}

/** The error of a policy with no quota, or with too many. */
export function wrongCount(count: number): unknown {
  return invalid("policy.quotas", `${count} is out of range; write 1 to ${QUOTAS_MAX} quotas`);
}

/** A policy as it counts at an instant: in the windows of its calendars. */
export function current(policy: Policy, now: number): Policy {
  return policy.calendar?.at!(policy, now) ?? policy;
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
  if (quotas.length === 0 || quotas.length > QUOTAS_MAX) throw wrongCount(quotas.length);
  const named = quotas.map((quota, nth) => ({ ...quota, name: quota.name ?? (quotas.length === 1 ? name : `${name}-${nth + 1}`) }));
  const order: Quota[] = [];
  named.forEach((quota, nth) => {
    const first = named.findIndex((other) => other.name === quota.name);
    if (first < nth) throw invalid(`policy.quotas[${nth}].name`, `"${quota.name}" is the name of quotas[${first}] already; write another`);
    quota.rule.fitsBeside?.(named, nth);
    const last = order.map(({ by }) => by).lastIndexOf(quota.by);
    const isLast = last >= 0 && !blocks(order[last]!.rule);
    const place = returnsCost(quota.rule) ? 0 : last < 0 ? order.length : last + Number(isLast);
    const before = order[place - 1];
    // A balance is the last one that counts, right after what it covers.
    const isAfterAll = before?.by !== quota.by || before.rule.code !== "ba" || blocks(quota.rule);
    order.splice(isAfterAll ? place : place - 1 - before.rule.last, 0, quota);
  });
  return order;
}

/** Whether a concurrency limit returns the cost with the slot. */
export function returnsCost({ code, last }: Rule): boolean {
  return code === "cc" && last === 1;
}

/** Whether a rule does not count, but blocks. */
export function blocks({ code }: Rule): boolean {
  return code === "pn";
}

/** A quota. If `made`, a policy gave it its name. */
function quota(ready: ReadyQuota, place: string, made: boolean, makeRule: MakeRule): Unplaced {
  const rule = makeRule(ready, place);
  const { name, by, part } = ready;
  if (name !== undefined && !made) checkedName(`${place}name`, name);
  // That of a rules file may be made of several, with what no name has between them.
  if (by !== undefined) checkedName(`${place}by`, by.replaceAll("+", "."));
  return { name, by: by ?? "", rule, part };
}

export function checkedName(place: string, name: string): string {
  if (/^[\w.-]{1,32}$/.test(name)) return name;
  throw invalid(place, `${shown(name)} cannot be a name; write 1 to 32 of the characters a-z A-Z 0-9 - _ .`);
}
