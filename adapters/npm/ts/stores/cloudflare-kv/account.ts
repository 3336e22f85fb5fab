import type { BucketState, Rule, SlidingState, State, WindowState } from "../../core/algorithms/algorithm.js";
import { TokenBucket } from "../../core/algorithms/buckets.js";
import { FixedWindow, SlidingWindow } from "../../core/algorithms/windows.js";
import { later, MAX_SKEW, MAX_UNITS, since } from "../../core/arithmetic.js";
import { copied, type Decision, decide, expiresAfter, moveBack, peek, unused } from "../../core/decide.js";
import type { Policy } from "../../core/policy.js";
import { ALLOWED, BINDING, DENIED, EACH, QUOTAS, STATUS, WAIT } from "../../decision_numbers.js";
import { cut, type Long, plain, SharedBucket } from "./bucket.js";
import { mixed } from "./draws.js";
import { encode, ENTRIES_MAX, type Entry } from "./record.js";

/** How long other isolates may take to see an entry. */
const HEARD_AFTER = 120_000;

/** How many values a key's counts are spread over. */
export const VALUES = 4;

/** How long an isolate writes the same value: twice the time that a write takes to be visible everywhere. */
const STAY = 120_000;

/**
 * The counts of one key in one isolate: what it has admitted itself, and what other isolates have admitted.
 *
 * A request is admitted only if both the counts of all isolates together and the count of this isolate alone admit it. The count of this
 * isolate does not depend on the store, so the ceiling does not either.
 */
export class Account {
  policy: Policy;
  readonly #own: Entry;
  #others: Entry[] = [];
  /** One for each quota that is a token bucket. */
  readonly #buckets: readonly (SharedBucket | undefined)[];
  /** An upper bound on what this isolate has admitted of the key, if it may have held and forgotten the key before. */
  readonly #carried: State[] | undefined;

  constructor(policy: Policy, id: bigint, carried: State[] | undefined) {
    this.policy = policy;
    this.#own = { id, at: 0, total: 0, states: unused(policy) };
    this.#buckets = policy.quotas.map(({ rule }) => (rule instanceof TokenBucket ? new SharedBucket() : undefined));
    this.#carried = carried;
  }

  /** Decides on a request, and counts it if it is admitted. */
  decide(now: number, cost: number): Decision {
    const [policy, own] = [this.policy, this.#own];
    this.#moveBack(now);
    let decision = this.#told(decide(policy, this.#together(now), now, cost), now, cost);
    if (decision[STATUS] !== ALLOWED) return decision;
    if (this.#carried) decision = tighter(decision, decide(policy, this.#carried, now, cost));
    if (decision[STATUS] !== ALLOWED || cost === 0) return decision;
    const alone = decide(policy, own.states, now, cost);
    if (alone[STATUS] !== ALLOWED) return alone;
    own.at = Math.max(own.at, now);
    own.total = sum(own.total, cost);
    policy.quotas.forEach(({ rule }, nth) => this.#buckets[nth]?.charge(rule as TokenBucket, now, cost));
    return decision;
  }

  /** The decision that `decide` would make. */
  peek(now: number, cost: number): Decision {
    const decision = this.#told(peek(this.policy, this.#together(now), now, cost), now, cost);
    return this.#carried && decision[STATUS] === ALLOWED ? tighter(decision, peek(this.policy, this.#carried, now, cost)) : decision;
  }

  /** Updates what is known of other isolates. Old entries, and entries of this isolate, change nothing. */
  learn(now: number, found: readonly Entry[]): void {
    const matters = (entry: Entry) => this.#mattersFor(entry, now) > 0;
    this.#others = this.#others.filter(matters);
    for (const entry of found) {
      // If this isolate has forgotten the key before, what is carried includes what it had counted.
      const isOwn = entry.id >> 32n === this.#own.id >> 32n;
      if (isOwn || entry.at > later(now, MAX_SKEW) || !matters(entry)) continue;
      const place = this.#others.findIndex(({ id }) => id === entry.id);
      const known = this.#others[place];
      if (known) {
        if (entry.total <= known.total) continue;
        this.#others[place] = entry;
        this.#hear(now, entry, { units: BigInt(entry.total) - BigInt(known.total), since: known.at });
      } else if (this.#others.length + 1 < ENTRIES_MAX) {
        // Replacing a known isolate would count it twice if it were seen again.
        this.#hear(now, entry, undefined);
        this.#others.push(entry);
      }
    }
  }

  /** The value that this account writes. */
  value(now: number): number {
    return Number(mixed(this.#own.id ^ BigInt(Math.floor(now / STAY))) % BigInt(VALUES));
  }

  /** The total that this account has admitted. */
  get total(): Long {
    return this.#own.total;
  }

  /** Whether this account's count matters to other isolates. */
  isWorthWriting(now: number): boolean {
    return this.#own.total > 0 && this.#mattersFor(this.#own, now) > 0;
  }

  /** An upper bound on what this isolate has admitted of the key. */
  get alone(): State[] {
    return this.#carried ?? this.#own.states;
  }

  /** How many units of the most used quota are used. */
  used(now: number): number {
    const { quotas } = this.policy;
    const states = copied(quotas, this.alone);
    moveBack(this.policy, states, now);
    return Math.max(...quotas.map(({ rule }, nth) => rule.limit - rule.remaining(states[nth]!, now)));
  }

  /** Whether nothing that this isolate has admitted of the key counts any more. */
  isUnused(now: number): boolean {
    return expiresAfter(this.policy, this.alone, now) === 0;
  }

  /** Whether `found` includes this account's newest count. */
  isIn(found: readonly Entry[]): boolean {
    return found.some(({ id, total }) => id === this.#own.id && total >= this.#own.total);
  }

  /** How many isolates are known, with this one. */
  get known(): number {
    return 1 + this.#others.length;
  }

  /** What to write: this account's own entry first, then those of other isolates. */
  written(): ArrayBuffer {
    return encode(this.policy, [this.#own, ...this.#others]);
  }

  /** How long the entries matter. */
  expiresAfter(now: number): number {
    return Math.max(...[this.#own, ...this.#others].map((entry) => this.#mattersFor(entry, now)));
  }

  /**
   * Moves what a wrong clock counted back to `MAX_SKEW` ahead of `now`, and forgets other isolates' entries beyond it. It must be kept even
   * if the request is denied. Otherwise, every later request would be denied in the same way.
   */
  #moveBack(now: number): void {
    const latest = later(now, MAX_SKEW);
    if (this.#others.some(({ at }) => at > latest)) this.#others = this.#others.filter(({ at }) => at <= latest);
    for (const bucket of this.#buckets) bucket?.moveBack(latest);
    this.#own.at = Math.min(this.#own.at, latest);
    moveBack(this.policy, this.#own.states, now);
    if (this.#carried) moveBack(this.policy, this.#carried, now);
  }

  #hear(now: number, { at, states }: Entry, grown: { units: bigint; since: number } | undefined): void {
    this.policy.quotas.forEach(({ rule }, nth) => {
      this.#buckets[nth]?.hear(rule as TokenBucket, now, { state: states[nth] as BucketState, at, grown });
    });
  }

  /**
   * How long an entry matters. A window's entry matters until the window has passed. A shared bucket can still be filled when each isolate's
   * own bucket has drained, so a bucket's entry matters longer, by the time that other isolates may take to see it.
   */
  #mattersFor({ at, states }: Entry, now: number): number {
    let longest = expiresAfter(this.policy, states, now);
    for (const { rule } of this.policy.quotas) {
      if (rule instanceof TokenBucket) longest = Math.max(longest, since(later(at, rule.window + HEARD_AFTER), now));
    }
    return longest;
  }

  /** The states of all known isolates together. */
  #together(now: number): State[] {
    return this.policy.quotas.map(({ rule }, nth) => {
      const own = this.#own.states[nth]!;
      if (rule instanceof FixedWindow) return this.#windows(rule, own as WindowState, nth, now);
      if (rule instanceof SlidingWindow) return this.#slidingWindows(rule, own as SlidingState, nth, now);
      return this.#buckets[nth]!.state(rule as TokenBucket, now);
    });
  }

  /** The sum of all counts in the current window, up to the largest limit. A sum that is rounded is above it. */
  #windows({ unit }: FixedWindow, own: WindowState, nth: number, now: number): WindowState {
    const start = Math.max(startOf(now, unit), own.start);
    const usedOf = (state: WindowState) => (state.start === start ? state.used : 0);
    let used = usedOf(own);
    for (const { states } of this.#others) used += usedOf(states[nth] as WindowState);
    return { start, used: Math.min(used, MAX_UNITS) };
  }

  /** The sums of all previous and all current counts, relative to the current window. */
  #slidingWindows(rule: SlidingWindow, own: SlidingState, nth: number, now: number): SlidingState {
    const start = Math.max(startOf(now, rule.unit), own.start);
    let [previous, current] = moved(rule, own, start);
    for (const { states } of this.#others) {
      const theirs = moved(rule, states[nth] as SlidingState, start);
      previous += theirs[0];
      current += theirs[1];
    }
    return { start, previous: Math.min(previous, MAX_UNITS), current: Math.min(current, MAX_UNITS) };
  }

  /** A decision by the states together, with the times of their buckets. */
  #told(decision: Decision, now: number, cost: number): Decision {
    if (decision[STATUS] === ALLOWED) return decision;
    const isDenied = decision[STATUS] === DENIED;
    let longest = BigInt(decision[WAIT]!);
    this.policy.quotas.forEach(({ rule }, nth) => {
      const wait = this.#buckets[nth]?.correct(decision, nth, rule as TokenBucket, now, cost);
      if (!isDenied || wait === undefined) return;
      // The first quota of those with the longest wait is the binding one. Doubles may round two waits to one.
      if (wait > longest || (wait === longest && nth < decision[BINDING]!)) [longest, decision[BINDING], decision[WAIT]] = [wait, nth, Number(wait)];
    });
    return decision;
  }
}

/** The previous and the current count of a state, relative to the window that begins at `start`. */
export function moved({ unit }: Rule, state: SlidingState, start: number): readonly [previous: number, current: number] {
  if (state.start === start) return [state.previous, state.current];
  if (later(state.start, unit) === start) return [state.current, 0];
  // The clock that counted was ahead, in the next window already.
  return [0, state.start === later(start, unit) ? state.previous : 0];
}

/** The start of the window of an instant. */
export function startOf(now: number, unit: number): number {
  return now - (now % unit);
}

/** Of two decisions on one request, the first of which admits it: the one that admits less. */
function tighter(first: Decision, second: Decision): Decision {
  const left = (decision: Decision) => decision[QUOTAS + EACH * decision[BINDING]! + 1]!;
  return second[STATUS] !== ALLOWED || left(second) < left(first) ? second : first;
}

function sum(total: Long, cost: number): Long {
  const rough = Number(total) + cost;
  return rough <= Number.MAX_SAFE_INTEGER ? rough : plain(cut(BigInt(total) + BigInt(cost)));
}
