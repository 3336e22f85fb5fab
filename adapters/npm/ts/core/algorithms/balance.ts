import { ALLOWED, AT, BINDING, EACH, PAID, QUOTAS, REPLAY, STATUS, UNKNOWN } from "../../decision_numbers.js";
import { invalid } from "../../error.js";
import { later, MAX_INSTANT, MAX_UNITS, since } from "../arithmetic.js";
import type { Balance as OfPolicy, BalanceParts, Dimension, Names, Part, Policy, Quota } from "../policy.js";
import { ADMITTED, type BalanceState, BUSY, isUnits, type Lot, NEVER, Rule, type State } from "./algorithm.js";
import { checkedAmount } from "./make_algorithm.js";

// What was granted, until it is spent: `algorithm/balance.rs` and `policy_state/payment.rs` of the core.

/** The place of the algorithm among all: see `ReadyQuota`. */
export const BALANCE = 9;

/** The most lots: grants of different expiry of which something is left. */
export const LOTS_MAX = 64;

/** The kinds of questions: see `question.ts`, which is not loaded here. */
const REFUND = 3;
const GRANT = 6;

/** What a balance can cover: what they admit is a number of units that only grows with time. */
const COVERABLE = ["fixed_window", "token_bucket", "calendar_window"];

/** How a quota becomes a balance. */
export function balances(parts: BalanceParts): Part {
  return {
    rule: ({ amount, refill }, place) => {
      checkedAmount(place, "max", amount, MAX_UNITS);
      return new Balance(amount, refill, parts);
    },
    described: (rule) => (rule as Balance).described,
    changes: "a balance is granted",
  };
}

/**
 * Holds at most `amount` units. If `last` is 1, it pays what the quota before it does not admit, and otherwise for each request.
 *
 * All quotas of a policy decide in order, so what the quota before has left of a request is known when the balance is asked about it.
 */
export class Balance extends Rule<BalanceState> implements OfPolicy {
  readonly name = "balance";
  readonly code = "ba";
  override readonly isHeld = true;
  /** Whether it pays only what the quota before it does not admit, and that. */
  #isCover = false;
  #coveredRule: Rule | undefined;
  /** What the balance is to pay of the request that its policy decides on. */
  #owed = 0;
  /** What the quota that it covers admits now and at most, and how long until that admits a cost. */
  #room = 0;
  #covered: { limit: number; wait: (cost: number) => number } | undefined;
  /** What it has paid of the charge that is settled. */
  #paid: readonly Lot[] = [];

  constructor(
    max: number,
    covers: number,
    readonly parts: BalanceParts,
  ) {
    super(max, 0, covers);
  }

  get described(): string {
    return `${this.name} of up to ${this.amount}${this.last === 1 ? ", for what is beyond the quota before" : ""}`;
  }

  unused(): BalanceState {
    return { debt: 0, lots: [] };
  }

  override copy({ debt, lots }: BalanceState): BalanceState {
    return { debt, lots: lots.map((lot) => ({ ...lot })) };
  }

  ask({ debt, lots }: BalanceState, now: number, cost: number): number {
    const live = sum(lots, now);
    if (!this.#covered) {
      this.#owed = cost;
      if (cost > this.amount) return NEVER;
      return debt > 0 || cost > live ? BUSY : ADMITTED;
    }
    if (cost > this.#covered.limit + this.amount) return NEVER;
    // A debt denies a request of cost 0 only if the quota admits nothing, either.
    const isInDebt = cost === 0 && debt > 0 && this.#room === 0;
    return this.#owed <= live && !isInDebt ? ADMITTED : this.#waitForBoth(lots, now, Math.max(cost, 1));
  }

  charge(state: BalanceState, now: number, cost: number): void {
    take(state, now, this.#part(cost));
  }

  /** Gives units back to the lots that paid them, the last payer first. What has expired since is lost. A debt is repaid first. */
  refund(state: BalanceState, _chargedAt: number, now: number, cost: number): void {
    let left = this.#returned(cost);
    for (const { units, expires } of [...this.#paid].reverse()) {
      const returned = Math.min(units, left);
      left -= returned;
      if (expires > now) add(state, returned, expires);
    }
    this.#paid = [];
    repay(state, now);
  }

  overdraw(state: BalanceState, now: number, cost: number): void {
    this.#paid = [];
    const left = take(state, now, this.#part(cost));
    if (left === 0) return;
    state.lots = [];
    state.debt = Math.min(state.debt + left, MAX_UNITS);
  }

  /** The state has no instant of a request. */
  moveBack(): void {}

  remaining({ lots }: BalanceState, now: number): number {
    return sum(lots, now);
  }

  /** How long the state has an effect. */
  resetAfter({ debt, lots }: BalanceState, now: number): number {
    return since(debt > 0 ? MAX_INSTANT : (lots.at(-1)?.expires ?? 0), now);
  }

  /** A key that holds a balance is not forgotten. */
  override left(state: BalanceState, now: number): number {
    return this.resetAfter(state, now) > 0 ? -1 : 1;
  }

  fits({ debt, lots }: BalanceState): boolean {
    const isInOrder = lots.every(({ units, expires }, nth) => units > 0 && expires <= MAX_INSTANT && (nth === 0 || expires > lots[nth - 1]!.expires));
    return isInOrder && lots.length <= LOTS_MAX && isUnits(Math.max(debt, sum(lots))) && (debt === 0 || lots.length === 0);
  }

  override numbersOf({ debt, lots }: BalanceState): number[] {
    return [debt, ...lots.flatMap(({ units, expires }) => [units, expires])];
  }

  override stateOf([debt = 0, ...lots]: readonly number[]): BalanceState {
    return { debt, lots: Array.from({ length: lots.length / 2 }, (_, nth) => ({ units: lots[2 * nth]!, expires: lots[2 * nth + 1]! })) };
  }

  /** Throws what is wrong with a balance at this place. */
  fitsBeside(quotas: readonly Quota[], place: number): void {
    const [path, { by }] = [`policy.quotas[${place}]`, quotas[place]!];
    const first = quotas.findIndex(({ rule }) => rule.code === this.code);
    if (first < place) throw invalid(path, `quotas[${first}] is a balance already, and one balance pays for a request; leave one out`);
    const slots = quotas.findIndex(({ rule }) => rule.code === "cc" && rule.last === 1);
    if (slots >= 0) throw invalid(`policy.quotas[${slots}].concurrency.returnsCost`, "a slot does not remember what the balance paid; leave this out");
    if (this.last === 0) return;
    const before = quotas.slice(0, place).filter((other) => other.by === by && other.rule.code !== "pn").at(-1);
    if (before && COVERABLE.includes(before.rule.name)) return;
    const found = before ? `a ${before.rule.name}` : "no quota";
    throw invalid(`${path}.covers`, `before it in its dimension is ${found}; write a ${COVERABLE.slice(0, -1).join(", a ")} or a ${COVERABLE.at(-1)} there, or leave this out`);
  }

  /** Throws if its policy is joined with another one that has a balance. */
  joins(names: string): never {
    throw invalid("policies", `${names} have a balance each, and one balance pays for a request; leave one out`);
  }

  /** Throws if a store cannot grant. */
  needs({ grant }: { readonly grant: boolean }): void {
    if (!grant) throw ["unsupported", "policy: this store does not support balances; count in one that does, such as Redis"];
  }

  /** Throws if a policy with a balance has no answer to a question. */
  checks({ kind, cost }: { readonly kind: number; readonly cost: number }): void {
    if (kind === REFUND) throw invalid("refund", "only a token tells what a balance paid; give the check a token, and settle it");
    if (kind === GRANT && (cost === 0 || cost > MAX_UNITS)) throw invalid("units", `${cost} is out of range; write a whole number from 1 to ${MAX_UNITS}`);
  }

  /** Divides each request with the quota before this one, if this covers it. Its policy has these rules. */
  covers(rules: readonly Rule[]): void {
    const covered = rules[rules.indexOf(this) - 1];
    if (this.last === 0 || !covered) return;
    const [ask, charge, refund, overdraw] = (["ask", "charge", "refund", "overdraw"] as const).map((name) => covered[name].bind(covered)) as [Rule["ask"], Rule["charge"], Rule["refund"], Rule["overdraw"]];
    const included = (state: State, now: number, cost: number) => {
      this.#room = covered.remaining(state, now);
      const units = Math.min(cost, this.#room);
      this.#owed = cost - units;
      return units;
    };
    const own: Pick<Rule, "ask" | "charge" | "refund" | "overdraw"> = {
      // The balance answers for both.
      ask: (state, now, cost) => {
        included(state, now, cost);
        this.#covered = { limit: covered.limit + covered.carryOver, wait: (rest) => covered.waitFor?.(state, now, rest) ?? ask(state, now, rest) };
        return ADMITTED;
      },
      charge: (state, now, cost, id) => charge(state, now, included(state, now, cost), id),
      refund: (state, chargedAt, now, cost) => refund(state, chargedAt, now, cost - this.#returned(cost)),
      overdraw: (state, now, cost) => overdraw(state, now, included(state, now, cost)),
    };
    Object.assign(covered, own);
    [this.#isCover, this.#coveredRule] = [true, covered];
  }

  /** How much it adds to the limit of a rule of its policy. Its own is no limit if it covers another one. */
  adds(rule: Rule): number {
    if (!this.#isCover) return 0;
    if (rule === this) return Infinity;
    return rule === this.#coveredRule ? this.amount + rule.carryOver : 0;
  }

  /** Adds to a decision what the balance pays, and which quota the response shows: the one that it covers as long as that admits anything. */
  tells(decision: number[], quotas: readonly Quota[], isFree: boolean): void {
    if (decision[STATUS] === ALLOWED) decision[PAID] = this.#owed;
    if (!isFree || !this.#isCover) return;
    const place = quotas.findIndex(({ rule }) => rule === this);
    const remaining = (nth: number) => (decision[QUOTAS + EACH * nth + 1] === UNKNOWN ? Infinity : decision[QUOTAS + EACH * nth + 1]!);
    const hasMore = remaining(place - 1) > 0;
    const [shown, hidden] = hasMore ? [place - 1, place] : [place, place - 1];
    let [fewest, least] = [shown, Infinity];
    for (let nth = 0; nth < quotas.length; nth++) {
      const left = nth === shown ? remaining(shown) + remaining(hidden) : nth === hidden ? Infinity : remaining(nth);
      if (left < least) [fewest, least] = [nth, left];
    }
    decision[BINDING] = fewest;
  }

  /** Notes in a decision what a server's balance has paid. Throws if that is not what it pays here, unless the answer is an earlier one. */
  agrees(decision: number[], answer: string): void {
    const paid = Number(/^.@\d+ \d+\+(\d+)/.exec(answer)?.[1] ?? 0);
    const isAllowed = decision[STATUS] === ALLOWED;
    if (isAllowed && !decision[REPLAY] && paid !== decision[PAID]) {
      const what = `the store and this library disagree on what a balance pays (by the store: ${paid}, here: ${decision[PAID]})`;
      throw ["corrupt", `${what}; do all clients of this store run the same version of Tidegate?`];
    }
    decision[PAID] = isAllowed ? paid : 0;
  }

  /** Notes what was paid of the charge that is settled next. */
  settles(paid: readonly Lot[] = []): void {
    this.#paid = paid;
  }

  /** The lots that paid the balance's part of an admitted request, from the states before it: those that expire first. */
  paid(quotas: readonly Quota[], before: readonly State[], decision: number[]): Lot[] {
    const [{ lots }, now] = [this.#stateOf(quotas, before), decision[AT]!];
    let left = decision[PAID]!;
    const payers: Lot[] = [];
    for (const { units, expires } of lots) {
      const taken = expires > now ? Math.min(units, left) : 0;
      if (taken > 0) payers.push({ units: taken, expires });
      left -= taken;
    }
    return payers;
  }

  /** Adds units that count before an instant, after the debt is repaid. Lots that have expired are removed. Throws why it takes none. */
  grant(quotas: readonly Quota[], states: readonly State[], now: number, units: number, expires: number): void {
    const state = this.#stateOf(quotas, states);
    if (expires <= now) throw expired();
    const room = since(this.amount, sum(state.lots, now)) + state.debt;
    if (units > room) throw passesMax(room);
    const live = state.lots.filter((lot) => lot.expires > now);
    if (live.filter((lot) => lot.expires !== expires).length >= LOTS_MAX) throw tooManyLots();
    state.lots = live;
    add(state, units, expires);
    repay(state, now);
  }

  /** The rows of its policy: those of its dimension are the quotas before it, itself, and the penalty after it. */
  rows({ dimensions, quotas }: Pick<Policy, "dimensions" | "quotas">): Dimension[] {
    return dimensions.flatMap((dimension) => {
      const { first, end } = dimension;
      const place = quotas.findIndex(({ rule }, nth) => rule === this && nth >= first && nth < end);
      if (place < 0) return [dimension];
      const parts = [[first, place], [place, place + 1], [place + 1, end]] as const;
      return parts.filter(([first, end]) => first < end).map(([first, end]) => ({ ...dimension, id: `${scopeOf(dimension)}:${quotas.slice(first, end).map(({ rule }) => rule.shape).join(".")}`, first, end }));
    });
  }

  /** The place of its row among those of its policy. */
  row({ rows, quotas }: Pick<Policy, "rows" | "quotas">): number {
    return rows.findIndex(({ first }) => quotas[first]!.rule === this);
  }

  /** Where the states of these keys are. The names of its own row and of its place have nothing of the quotas beside it. */
  storage(policy: Policy, keys: readonly string[]): Names {
    const { dimensions, rows, group, placeByKey } = policy;
    const dimensionOf = (row: Dimension) => dimensions.findIndex(({ end }) => row.first < end);
    const placeOf = (dimension: Dimension, key: string) => `tg1:${scopeOf(dimension)}:${this.shape}:${key}`;
    if (placeByKey) {
      const place = `tg1:@${dimensions[0]!.name}:${keys[0]}`;
      return { place, rows: rows.map(({ id }) => `${place}|${id}`) };
    }
    const own = this.row(policy);
    const of = group ?? (dimensions.length === 1 ? dimensions[0] : undefined);
    const place = of && placeOf(of, keys[dimensions.indexOf(of)]!);
    const names = rows.map((row, nth) => {
      const [dimension, key] = [dimensionOf(row), keys[dimensionOf(row)]!];
      if (of && of.name === row.name) return nth === own ? place! : `${place}|${row.id}`;
      if (of) return `${place}|${row.id}:${key}`;
      // Those of a dimension are in one place, alone and in a policy of several.
      return nth !== own && dimension === dimensionOf(rows[own]!) ? `${placeOf(row, key)}|${row.id}` : `tg1:${row.id}:${key}`;
    });
    return { place, rows: names };
  }

  #stateOf(quotas: readonly Quota[], states: readonly State[]): BalanceState {
    return states[quotas.findIndex(({ rule }) => rule === this)] as BalanceState;
  }

  #part(cost: number): number {
    return this.#isCover ? this.#owed : cost;
  }

  /** How much of what is returned goes to the balance. */
  #returned(cost: number): number {
    return Math.min(sum(this.#paid), cost);
  }

  /** How long until the quota has replenished so much that it and the balance admit a cost, if nothing is granted. The balance pays less once a lot has expired. */
  #waitForBoth(lots: readonly Lot[], now: number, cost: number): number {
    let [live, from] = [sum(lots, now), now];
    const alive = lots.filter(({ expires }) => expires > now);
    for (let nth = 0; ; nth++) {
      const wait = this.#covered!.wait(cost - Math.min(live, cost));
      // It never admits so much, and after an expiry it would have to admit more.
      if (wait < 0) return BUSY;
      const [at, lot] = [Math.max(from, later(now, wait)), alive[nth]];
      if (!lot || at < lot.expires) return since(at, now);
      live -= lot.units;
      from = lot.expires;
    }
  }
}

/** What the id of a dimension or a row begins with. */
function scopeOf({ id }: Dimension): string {
  return id.slice(0, id.indexOf(":"));
}

/** Why a grant is not made. */
export function passesMax(room: number): unknown {
  return invalid("units", `the balance would pass its max; write at most ${room}, or raise the max of the balance`);
}

export function tooManyLots(): unknown {
  return invalid("expires", `the balance has ${LOTS_MAX} lots, which is the most; grant units that expire together with another lot, such as at the end of a month`);
}

export function expired(): unknown {
  return invalid("expires", "the time has passed; write a later one");
}

/** The units of lots, or of those that are left at an instant. */
function sum(lots: readonly Lot[], now = -1): number {
  let all = 0;
  for (const { units, expires } of lots) if (expires > now) all += units;
  return all;
}

/** Takes units from the lots that expire first. Returns what they have not. Lots that have expired stay until a grant: a wrong clock removes none. */
function take(state: BalanceState, now: number, units: number): number {
  let left = units;
  for (const lot of state.lots) {
    const taken = lot.expires > now ? Math.min(lot.units, left) : 0;
    lot.units -= taken;
    left -= taken;
  }
  state.lots = state.lots.filter(({ units }) => units > 0);
  return left;
}

/** Adds units. If there are as many lots as there may be, they join the one that expires next before them, or the first one. */
function add({ lots }: BalanceState, granted: number, expires: number): void {
  const units = Math.min(granted, since(MAX_UNITS, sum(lots)));
  if (units === 0) return;
  const found = lots.findIndex((lot) => lot.expires >= expires);
  const place = found < 0 ? lots.length : found;
  if (lots[place]?.expires === expires) lots[place]!.units += units;
  else if (lots.length < LOTS_MAX) lots.splice(place, 0, { units, expires });
  else lots[Math.max(place - 1, 0)]!.units += units;
}

/** Repays the debt with what is left. There are no lots during a debt, so these were just added. */
function repay(state: BalanceState, now: number): void {
  if (state.debt > 0) state.debt = take(state, now, state.debt);
}
