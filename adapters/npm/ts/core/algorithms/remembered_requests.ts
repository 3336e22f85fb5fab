import { invalid } from "../../error.js";
import { later, MAX_SKEW, MAX_UNITS, since } from "../arithmetic.js";
import { returnsCost } from "../policy.js";
import { ADMITTED, type Beside, BUSY, isUnits, type LogState, NEVER, Rule, type SlotsState } from "./algorithm.js";

// The algorithms that remember each request.

/** The most units of a log. */
const MAX_LOG = 4_294_967_295;

/** The later one of this instant and that of the newest entry: a clock may step back. */
function instantOf(entries: readonly { at: number }[], now: number): number {
  return entries.length === 0 ? now : Math.max(entries.at(-1)!.at, now);
}

export class SlidingLog extends Rule<LogState> {
  readonly name = "sliding_log";
  readonly code = "sl";

  unused(): LogState {
    return { entries: [] };
  }

  override copy({ entries }: LogState): LogState {
    return { entries: entries.map(({ at, units }) => ({ at, units })) };
  }

  ask({ entries }: LogState, now: number, cost: number): number {
    if (cost > this.amount) return NEVER;
    const first = this.#gone(entries, now);
    let used = sum(entries, first);
    let wait: number = ADMITTED;
    for (let nth = first; used + cost > this.amount && nth < entries.length; nth++) {
      used -= entries[nth]!.units;
      wait = entries[nth]!.at + this.unit - now;
    }
    return wait;
  }

  charge({ entries }: LogState, now: number, cost: number): void {
    if (cost === 0) return;
    const instant = this.#forget(entries, now);
    const before = sum(entries, 0);
    add(entries, instant, cost);
    // Only a charged denial exceeds the limit. It replaces the oldest entries.
    let over = before + cost - Math.max(this.amount, before);
    while (over > 0) {
      const part = Math.min(entries[0]!.units, over);
      over -= part;
      entries[0]!.units -= part;
      if (entries[0]!.units === 0) entries.shift();
    }
  }

  refund({ entries }: LogState, chargedAt: number, _now: number, cost: number): void {
    const place = entries.findIndex(({ at }) => at === chargedAt);
    if (place < 0) return;
    const entry = entries[place]!;
    entry.units = Math.max(entry.units - cost, 0);
    if (entry.units === 0) entries.splice(place, 1);
  }

  overdraw({ entries }: LogState, now: number, cost: number): void {
    const instant = this.#forget(entries, now);
    const units = Math.min(cost, Math.max(MAX_LOG - sum(entries, 0), 0));
    if (units > 0) add(entries, instant, units);
  }

  moveBack({ entries }: LogState, now: number): void {
    const latest = later(now, MAX_SKEW);
    if (entries.length === 0 || entries.at(-1)!.at < latest) return;
    const first = entries.findIndex(({ at }) => at >= latest);
    const units = sum(entries, first);
    entries.splice(first, entries.length, { at: latest, units });
  }

  remaining({ entries }: LogState, now: number): number {
    return Math.max(this.amount - sum(entries, this.#gone(entries, now)), 0);
  }

  resetAfter({ entries }: LogState, now: number): number {
    return this.#gone(entries, now) < entries.length ? entries.at(-1)!.at + this.unit - now : 0;
  }

  fits({ entries }: LogState, latest: number): boolean {
    const isInOrder = entries.every(({ at, units }, nth) => units > 0 && at <= latest && (nth === 0 || at > entries[nth - 1]!.at));
    return isInOrder && sum(entries, 0) <= MAX_LOG;
  }

  /** How many entries are out of sight. */
  #gone(entries: LogState["entries"], now: number): number {
    const instant = instantOf(entries, now);
    let gone = 0;
    while (gone < entries.length && instant - entries[gone]!.at >= this.unit) gone += 1;
    return gone;
  }

  #forget(entries: LogState["entries"], now: number): number {
    const instant = instantOf(entries, now);
    entries.splice(0, this.#gone(entries, now));
    return instant;
  }
}

function sum(entries: LogState["entries"], from: number): number {
  let all = 0;
  for (let nth = from; nth < entries.length; nth++) all += entries[nth]!.units;
  return all;
}

function add(entries: LogState["entries"], at: number, units: number): void {
  const newest = entries.at(-1);
  if (newest?.at === at) newest.units += units;
  else entries.push({ at, units });
}

/** `unit` is the lifetime of a slot, and `last` is 1 if the cost is returned with it. */
export class Concurrency extends Rule<SlotsState> {
  readonly name = "concurrency";
  readonly code = "cc";
  override readonly isHeld = true;
  override readonly counted = "concurrent-requests";

  unused(): SlotsState {
    return { slots: [] };
  }

  override copy({ slots }: SlotsState): SlotsState {
    return { slots: slots.map((slot) => ({ ...slot })) };
  }

  ask(state: SlotsState, now: number, cost: number): number {
    return this.#used(state, now) + Math.min(cost, 1) <= this.amount ? ADMITTED : BUSY;
  }

  charge(state: SlotsState, now: number, cost: number, id: string): void {
    if (cost === 0) return;
    const at = instantOf(state.slots, now);
    this.expire(state, now);
    // Without another quota, any cost is admitted.
    state.slots.push({ id, at, cost: Math.min(cost, MAX_UNITS) });
  }

  refund(): void {}

  overdraw(): void {}

  moveBack({ slots }: SlotsState, now: number): void {
    const latest = later(now, MAX_SKEW);
    for (let nth = slots.length - 1; nth >= 0 && slots[nth]!.at > latest; nth--) slots[nth]!.at = latest;
  }

  remaining(state: SlotsState, now: number): number {
    return Math.max(this.amount - this.#used(state, now), 0);
  }

  resetAfter({ slots }: SlotsState, now: number): number {
    return slots.length === 0 ? 0 : since(later(slots.at(-1)!.at, this.unit), now);
  }

  /** A key that holds a slot is not forgotten. */
  override left(state: SlotsState, now: number): number {
    return this.resetAfter(state, now) > 0 ? -1 : 1;
  }

  fits({ slots }: SlotsState, latest: number): boolean {
    const isInOrder = slots.every(({ at, cost }, nth) => isUnits(cost) && at <= latest && (nth === 0 || at >= slots[nth - 1]!.at));
    return isInOrder;
  }

  override fitsBeside(quotas: readonly Beside[], nth: number): void {
    if (!returnsCost(this)) return;
    const first = quotas.slice(0, nth).findIndex(({ rule }) => returnsCost(rule));
    const place = `policy.quotas[${nth}].concurrency.returnsCost`;
    if (first >= 0) throw invalid(place, `quotas[${first}] returns the cost already; leave this out`);
    // A slot does not remember its request's keys of other dimensions.
    if (quotas.some(({ by }) => by !== quotas[nth]!.by)) throw invalid(place, "the policy has several dimensions; leave this out");
  }

  /** The slots that were never given back. */
  expired({ slots }: SlotsState, now: number): SlotsState["slots"] {
    const instant = instantOf(slots, now);
    let gone = 0;
    while (gone < slots.length && instant - slots[gone]!.at >= this.unit) gone += 1;
    return slots.slice(0, gone);
  }

  expire(state: SlotsState, now: number): void {
    state.slots.splice(0, this.expired(state, now).length);
  }

  /** Gives a slot back. Whether there was one. */
  release(state: SlotsState, id: string, now: number): boolean {
    const gone = this.expired(state, now).length;
    const place = state.slots.findIndex((slot, nth) => nth >= gone && slot.id === id);
    if (place < 0) return false;
    state.slots.splice(place, 1);
    return true;
  }

  #used(state: SlotsState, now: number): number {
    return state.slots.length - this.expired(state, now).length;
  }
}
