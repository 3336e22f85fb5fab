import { ALLOWED, BINDING, DENIED, EACH, FROM_STORE, NEVER_ADMISSIBLE, QUOTAS, UNKNOWN } from "../decision_numbers.js";
import { ADMITTED, BUSY, IMPLAUSIBLE_AFTER, type Lot, NEVER, type PenaltyState, type Rule, type SlotsState, type State } from "./algorithms/algorithm.js";
import type { Penalty } from "./algorithms/penalty.js";
import type { Concurrency } from "./algorithms/remembered_requests.js";
import { later } from "./arithmetic.js";
import { blocks, type Policy, type Quota } from "./policy.js";
import { balanceOf } from "./valid_question.js";

/** A decision, as numbers at the places of `decision_numbers.ts`. */
export type Decision = number[];

/** The id of a charge that nobody will settle. */
export const NO_CHARGE = "0000000000000000";

/** A charge that can be settled. */
export interface Charge {
  id: string;
  at: number;
  cost: number;
  /** What a balance paid of it. */
  paid?: readonly Lot[] | undefined;
}

/** What all quotas answer together. */
interface Answer {
  status: number;
  /** Which quota decides, or -1. */
  binding: number;
  /** `UNKNOWN` if nobody knows when a request ends. */
  wait: number;
  delay: number;
}

/** Whether it limits how many requests are in flight. By its code, so that who uses none does not load it. */
function isConcurrency(rule: Rule): rule is Concurrency & Rule {
  return rule.code === "cc";
}

/** The states of a policy whose key has never come. */
export function unused(policy: Policy): State[] {
  return policy.quotas.map(({ rule }) => rule.unused());
}

/** Copies the states of these quotas. */
export function copied(quotas: readonly Quota[], states: readonly State[]): State[] {
  return quotas.map(({ rule }, nth) => rule.copy(states[nth]!));
}

/** Decides on a request, and charges it if every quota admits it. */
export function decide(policy: Policy, states: State[], now: number, cost: number, id = NO_CHARGE): Decision {
  const { quotas, chargeDenied, sole } = policy;
  if (sole) return decideAlone(sole, states[0]!, now, cost, chargeDenied);
  moveBack(policy, states, now);
  returnExpired(policy, states, now);
  let answer = ask(policy, states, now, cost);
  const isChargedDenial = chargeDenied && answer.status === DENIED;
  const isPunished = answer.status === DENIED && punish(policy, states, now, cost);
  if (answer.status === ALLOWED || isChargedDenial) {
    for (let nth = 0; nth < quotas.length; nth++) {
      const { rule } = quotas[nth]!;
      // A denied request does not run, holds no slot, and takes nothing from a balance.
      if (!(isChargedDenial && rule.isHeld)) rule.charge(states[nth]!, now, cost, id);
    }
  }
  // The wait includes what was just charged, and the block.
  if (isChargedDenial || isPunished) answer = ask(policy, states, now, cost);
  return explain(policy, states, now, answer);
}

/** The same for the only quota of a policy, if it admits by a count. */
export function decideAlone(rule: Rule, state: State, now: number, cost: number, chargeDenied: boolean): Decision {
  rule.moveBack(state, now);
  let wait = rule.ask(state, now, cost);
  const status = wait === ADMITTED ? ALLOWED : wait === NEVER ? NEVER_ADMISSIBLE : DENIED;
  const delay = status === ALLOWED ? rule.delay(state, now) : 0;
  if (status === ALLOWED || (status === DENIED && chargeDenied)) {
    rule.charge(state, now, cost, NO_CHARGE);
    // The wait includes what was just charged.
    if (status === DENIED) wait = rule.ask(state, now, cost);
  }
  return [status, 0, status === DENIED ? wait : UNKNOWN, delay, now, FROM_STORE, 0, 0, rule.most(state, now), rule.remaining(state, now), rule.resetAfter(state, now)];
}

/** Decides like `decide`, but changes nothing. */
export function peek(policy: Policy, states: readonly State[], now: number, cost: number): Decision {
  const copy = copied(policy.quotas, states);
  moveBack(policy, copy, now);
  returnExpired(policy, copy, now);
  return explain(policy, copy, now, ask(policy, copy, now, cost));
}

export function refund(policy: Policy, states: State[], chargedAt: number, now: number, cost: number): void {
  moveBack(policy, states, now);
  policy.quotas.forEach(({ rule }, nth) => rule.refund(states[nth]!, chargedAt, now, cost));
}

/** Settles a charge to its actual cost. */
export function settle(policy: Policy, states: State[], { id, at, cost, paid }: Charge, now: number, actual: number): void {
  moveBack(policy, states, now);
  returnExpired(policy, states, now);
  policy.balance?.settles(paid);
  let charged = cost;
  policy.quotas.forEach(({ rule }, nth) => {
    // The cost was returned when the slot expired.
    if (isConcurrency(rule) && !rule.release(states[nth] as SlotsState, id, now) && rule.last === 1) charged = 0;
  });
  if (actual <= charged) refund(policy, states, at, now, charged - actual);
  else policy.quotas.forEach(({ rule }, nth) => rule.overdraw(states[nth]!, now, actual - charged));
}

/** Charges units that were admitted already, also beyond the limit. */
export function overdraw(policy: Policy, states: State[], now: number, units: number): void {
  if (units === 0) return;
  moveBack(policy, states, now);
  policy.quotas.forEach(({ rule }, nth) => rule.overdraw(states[nth]!, now, units));
}

/** Adds units to the balance, which count before an instant. Throws why it takes none. */
export function grant(policy: Policy, states: State[], now: number, units: number, expires: number): void {
  balanceOf(policy).grant(policy.quotas, states, now, units, expires);
  moveBack(policy, states, now);
}

/** Blocks a key by hand, or ends its block. */
export function block(policy: Policy, states: State[], now: number, span: number): void {
  moveBack(policy, states, now);
  policy.quotas.forEach(({ rule }, nth) => {
    if (blocks(rule)) (rule as Penalty & Rule).block(states[nth] as PenaltyState, now, span);
  });
}

/** How long until the states are those of an unused key. */
export function expiresAfter(policy: Policy, states: readonly State[], now: number, first = 0, end = states.length): number {
  let longest = 0;
  for (let nth = first; nth < end; nth++) longest = Math.max(longest, policy.quotas[nth]!.rule.resetAfter(states[nth]!, now));
  return longest;
}

/** Throws if this policy cannot have written the states by now. */
export function verify(policy: Policy, states: readonly State[], now: number): void {
  const latest = later(now, IMPLAUSIBLE_AFTER);
  policy.quotas.forEach(({ rule }, nth) => {
    if (!rule.fits(states[nth]!, latest)) throw ["corrupt", `stored state: quotas[${nth}] is not a state of a ${rule.name}; delete the key, or find what else writes to it`];
  });
}

/** A decision without counts: an admission from a lease, or a denial that holds for `wait`. */
export function withoutCounts({ uncounted }: Policy, status: number, binding: number, wait: number, now: number, origin: number): Decision {
  return [status, binding, wait, 0, now, origin, 0, 0, ...uncounted];
}

export function moveBack({ quotas }: Policy, states: readonly State[], now: number): void {
  for (let nth = 0; nth < quotas.length; nth++) quotas[nth]!.rule.moveBack(states[nth]!, now);
}

/** Refunds what slots have held that were never given back, if a concurrency limit returns the cost. It is the first quota. */
function returnExpired({ quotas }: Policy, states: readonly State[], now: number): void {
  const { rule } = quotas[0]!;
  if (!isConcurrency(rule) || rule.last === 0) return;
  const slots = states[0] as SlotsState;
  for (const { at, cost } of rule.expired(slots, now)) {
    for (let nth = 1; nth < quotas.length; nth++) quotas[nth]!.rule.refund(states[nth]!, at, now, cost);
  }
  rule.expire(slots, now);
}

/** Counts a violation in each dimension whose quotas deny the request. Whether a state has changed. */
function punish({ quotas, dimensions }: Policy, states: readonly State[], now: number, cost: number): boolean {
  let isPunished = false;
  for (const { first, end } of dimensions) {
    const { rule } = quotas[end - 1]!;
    if (!blocks(rule)) continue;
    for (let nth = first; nth < end - 1; nth++) {
      if (quotas[nth]!.rule.ask(states[nth]!, now, cost) === ADMITTED) continue;
      isPunished = (rule as Penalty & Rule).violate(states[end - 1] as PenaltyState, now) || isPunished;
      break;
    }
  }
  return isPunished;
}

function ask({ quotas }: Policy, states: readonly State[], now: number, cost: number): Answer {
  const answer: Answer = { status: ALLOWED, binding: -1, wait: 0, delay: 0 };
  for (let nth = 0; nth < quotas.length; nth++) {
    const { rule } = quotas[nth]!;
    const wait = rule.ask(states[nth]!, now, cost);
    if (wait === ADMITTED) {
      answer.delay = Math.max(answer.delay, rule.delay(states[nth]!, now));
    } else if (wait === NEVER) {
      if (answer.status !== NEVER_ADMISSIBLE) answer.binding = nth;
      answer.status = NEVER_ADMISSIBLE;
    } else if (answer.status !== NEVER_ADMISSIBLE) {
      answer.status = DENIED;
      // An unknown wait counts as the longest.
      const isLongest = answer.wait !== UNKNOWN && (answer.binding < 0 || wait === BUSY || wait > answer.wait);
      if (isLongest) [answer.binding, answer.wait] = [nth, wait === BUSY ? UNKNOWN : wait];
    }
  }
  return answer;
}

function explain({ quotas, balance }: Policy, states: readonly State[], now: number, { status, binding, wait, delay }: Answer): Decision {
  const decision: Decision = [status, binding, status === DENIED ? wait : UNKNOWN, status === ALLOWED ? delay : 0, now, FROM_STORE, 0, 0];
  for (let nth = 0; nth < quotas.length; nth++) report(decision, quotas[nth]!.rule, states[nth]!, now);
  if (binding < 0) decision[BINDING] = fewest(decision);
  balance?.tells(decision, quotas, binding < 0);
  return decision;
}

function report(decision: Decision, rule: Rule, state: State, now: number): void {
  if (blocks(rule)) {
    const wait = rule.ask(state, now, 0);
    decision.push(1, wait > 0 ? 0 : UNKNOWN, wait > 0 ? wait : UNKNOWN);
  } else {
    // A slot may be given back at any time, and units may be granted.
    decision.push(rule.most(state, now), rule.remaining(state, now), rule.isHeld ? UNKNOWN : rule.resetAfter(state, now));
  }
}

/** The first quota with the fewest requests remaining. */
function fewest(decision: Decision): number {
  let [place, least] = [0, Infinity];
  for (let at = QUOTAS; at < decision.length; at += EACH) {
    const remaining = decision[at + 1]!;
    if (remaining !== UNKNOWN && remaining < least) [place, least] = [(at - QUOTAS) / EACH, remaining];
  }
  return place;
}
