import type { Runner } from "../../calls.js";
import type { Rule, State } from "../../core/algorithms/algorithm.js";
import { later } from "../../core/arithmetic.js";
import { copied, type Decision, decide, decideAlone, expiresAfter, unused } from "../../core/decide.js";
import type { Dimension, Policy } from "../../core/policy.js";
import type { ExactCore } from "../../limiter_core.js";
import { CHECK, type Question } from "../../question.js";
import { Rows } from "./rows.js";

/** The counts of all limiters, so that two of the same policy count together, as on every other store: by the id of a dimension. */
const dimensions = new Map<string, Rows>();

/** Forgets the counts of all limiters that are made afterwards. */
export function forgetCounts(): void {
  dimensions.clear();
}

/** The most keys of each dimension with a count of their own, unless the options say otherwise. */
export const MAX_KEYS = 1_000_000;

/** Where the states of a question's key are, for one dimension. */
export interface Place {
  readonly dimension: Dimension;
  readonly rows: Rows;
  readonly key: string;
  /** The place of the row that makes room for the key's own, if it needs one. */
  room: number | undefined;
}

/** Decides on checks, and counts them in the memory of this process. What else a limiter does is in `Memory`. */
export class Checks implements Runner {
  protected readonly core: ExactCore;
  protected readonly maxKeys: number;
  /** Whether a further key takes the place of another, if there are `maxKeys`. */
  protected readonly evicts: boolean = true;
  /** What happens to a further key then. */
  protected readonly effect: string = "a further key takes the place of one that has used little of its limit, which is forgotten";
  /** The rows of each dimension, or of each row of a policy with a balance, by its id. */
  readonly #rows: ReadonlyMap<string, Rows>;
  /** Those of the first one. */
  readonly #first: Rows;
  /** Tells the application what happens to further keys. It is called once. */
  #tell: ((message: string) => void) | undefined;

  constructor(core: ExactCore, maxKeys = MAX_KEYS, tell?: (message: string) => void) {
    this.core = core;
    this.#rows = new Map(core.policy.rows.map((dimension) => [dimension.id, known(dimensions, dimension.id, () => new Rows(core.policy, dimension))]));
    [this.#first] = this.#rows.values() as Iterable<Rows> as [Rows];
    [this.maxKeys, this.#tell] = [maxKeys, tell];
  }

  answer(question: Question): true {
    const { sole } = question.policy;
    if (sole && question.kind === CHECK && question.token === undefined && this.#counted(sole, question)) return true;
    this.core.decision = this.decision(question, this.#places(question));
    return true;
  }

  /** Answers a question that is not a check by the only quota of a policy, or whose key has no count of its own. */
  protected decision(question: Question, places: Place[]): Decision {
    if (question.kind !== CHECK || question.token !== undefined) throw ["unsupported", "a RateLimiter only decides; write Tidegate in place of it"];
    this.tend(question, places);
    this.makeRoom(places, question.now);
    return this.decide(question, places);
  }

  /** Decides on a check by the only quota. Whether the key has a count of its own, or gets one. */
  #counted(sole: Rule, { key, now, cost, policy: { retention } }: Question): boolean {
    const rows = this.#first;
    rows.tend(now, retention);
    let name = key;
    let place = rows.findText(key);
    if (place === undefined) {
      name = this.core.keyOf(key);
      place = rows.find(name);
    }
    const isFull = place === undefined && rows.size >= this.maxKeys;
    if (place === undefined && (rows.shares > 0 || (isFull && !this.evicts))) return false;
    const states = place === undefined ? [sole.unused()] : rows.states(place);
    this.core.decision = decideAlone(sole, states[0]!, now, cost);
    if (place !== undefined) {
      rows.store(place, states, later(now, retention));
    } else if (sole.resetAfter(states[0]!, now) > 0) {
      if (isFull) {
        this.tellOnce();
        // No count of such a policy must be kept.
        rows.evict(rows.leastUsed(now)!);
      }
      rows.add(name, states, later(now, retention));
    }
    return true;
  }

  protected tend({ now, policy }: Question, places: readonly Place[]): void {
    for (const { rows } of places) rows.tend(now, policy.retention);
  }

  protected decide(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost } = question;
    return this.change(question, places, (states) => decide(policy, states, now, cost, this.core.chargeId(question)));
  }

  /** Chooses what makes room for the keys that have no count, or throws. */
  protected makeRoom(places: Place[], now: number): void {
    for (const place of places) {
      if (!this.isFullFor(place.rows, place.key)) continue;
      this.tellOnce();
      place.room = this.evicts ? place.rows.leastUsed(now) : undefined;
      if (place.room === undefined) throw ["refused", `the memory has counts of ${this.maxKeys} keys, and takes no further one; raise maxKeys`];
    }
  }

  /** Whether a key has no count of its own, and there is no room for one. */
  protected isFullFor(rows: Rows, key: string): boolean {
    return rows.size >= this.maxKeys && rows.find(key) === undefined;
  }

  protected tellOnce(): void {
    this.#tell?.(`the memory has counts of ${this.maxKeys} keys, and there are more: ${this.effect}; raise maxKeys`);
    this.#tell = undefined;
  }

  #places({ key, others, policy: { dimensions, rows, group } }: Question): Place[] {
    const keys = [...others, key].map((text) => this.core.keyOf(text));
    const at = group ? dimensions.indexOf(group) : -1;
    // No key has a bar.
    const keyAt = (nth: number) => (at < 0 || at === nth ? keys[nth]! : `${keys[at]}|${keys[nth]}`);
    return rows.map((dimension) => {
      const nth = dimensions.findIndex(({ end }) => dimension.first < end);
      return { dimension, rows: this.#rows.get(dimension.id)!, key: keyAt(nth), room: undefined };
    });
  }

  /** Changes the states of a question's keys, and stores those that have changed. */
  protected change({ policy, now }: Question, places: readonly Place[], change: (states: State[]) => Decision): Decision {
    const before = this.statesOf(policy, places);
    const after = copied(policy.quotas, before);
    const answer = change(after);
    for (const place of places) {
      const { first, end } = place.dimension;
      const part = after.slice(first, end);
      if (JSON.stringify(part) === JSON.stringify(before.slice(first, end))) continue;
      // Each row for its own time: a balance may last for years.
      const lasts = expiresAfter(policy, after, now, first, end);
      if (lasts > 0 || this.stateOf(place.rows, place.key) !== undefined) this.store(place, part, later(now, Math.max(lasts, policy.retention)));
    }
    return answer;
  }

  /** Stores the states of a key under its name. */
  protected store({ rows, key, room }: Place, states: State[], until: number): void {
    const place = rows.find(key);
    if (place !== undefined) return rows.store(place, states, until);
    if (room !== undefined) rows.evict(room);
    rows.add(key, states, until);
  }

  /** Copies the states of a question's keys. */
  protected statesOf(policy: Policy, places: readonly Place[]): State[] {
    const fresh = unused(policy);
    return places.flatMap(({ dimension: { first, end }, rows, key }) => {
      const place = this.stateOf(rows, key);
      return place === undefined ? fresh.slice(first, end) : copied(policy.quotas.slice(first, end), rows.states(place));
    });
  }

  /** The row of a key. */
  protected stateOf(rows: Rows, key: string): number | undefined {
    return rows.find(key);
  }
}

export function known<T>(all: Map<string, T>, id: string, make: () => T): T {
  const one = all.get(id) ?? make();
  all.set(id, one);
  return one;
}
