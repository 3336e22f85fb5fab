import type { Runner } from "../../calls.js";
import type { Rule } from "../../core/algorithms/algorithm.js";
import { later } from "../../core/arithmetic.js";
import { type Decision, decideAlone } from "../../core/decide.js";
import { keyOf } from "../../core/key.js";
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

/** What happens to a further key then, unless the options say otherwise. */
export const EVICTS = "a further key takes the place of one that has used little of its limit, which is forgotten";

/** Decides on checks by one quota, and counts them in the memory of this process. Several quotas are decided in `several.ts`. */
export class Checks implements Runner {
  declare protected readonly core: ExactCore;
  declare protected readonly maxKeys: number;
  /** Those of each dimension, or of each row of a policy with a balance, by its id. */
  declare protected readonly rows: ReadonlyMap<string, Rows>;
  /** Those of the first one. */
  readonly #first: Rows;
  /** What happens to a further key if there are `maxKeys`. */
  protected readonly effect: string = EVICTS;
  /** Tells the application what happens to further keys. It is called once. */
  #tell: ((message: string) => void) | undefined;

  constructor(core: ExactCore, maxKeys = MAX_KEYS, tell?: (message: string) => void) {
    this.core = core;
    this.rows = new Map(core.policy.rows.map((dimension) => [dimension.id, known(dimensions, dimension.id, () => new Rows(core.policy, dimension))]));
    [this.#first] = this.rows.values() as Iterable<Rows> as [Rows];
    [this.maxKeys, this.#tell] = [maxKeys, tell];
  }

  answer(question: Question): true {
    const { sole } = question.policy;
    if (!(sole && question.kind === CHECK && question.token === undefined && this.#counted(sole, question))) this.core.decision = this.decision(question);
    return true;
  }

  /** Answers a question that is not a check by the only quota of a policy, or whose key shares a count. */
  protected decision(_question: Question): Decision {
    throw ["unsupported", "a RateLimiter only decides; write Tidegate in place of it"];
  }

  /** Whether keys without a count of their own share one, or are refused. */
  protected sharesOrRefuses(_rows: Rows, _isFull: boolean): boolean {
    return false;
  }

  protected tellOnce(): void {
    this.#tell?.(`the memory has counts of ${this.maxKeys} keys, and there are more: ${this.effect}; raise maxKeys`);
    this.#tell = undefined;
  }

  /** Decides on a check by the only quota. Whether the key has a count of its own, or gets one. */
  #counted(sole: Rule, { key, now, cost, policy: { chargeDenied, isOfGate, retention } }: Question): boolean {
    const rows = this.#first;
    rows.tend(now, retention);
    let name = key;
    let place = rows.findText(key);
    if (place === undefined) {
      name = keyOf(key, isOfGate);
      place = rows.find(name);
    }
    const isFull = place === undefined && rows.size >= this.maxKeys;
    if (place === undefined && this.sharesOrRefuses(rows, isFull)) return false;
    const states = place === undefined ? [sole.unused()] : rows.states(place);
    this.core.decision = decideAlone(sole, states[0]!, now, cost, chargeDenied);
    if (place !== undefined) {
      rows.store(place, states, later(now, retention));
    } else if (sole.resetAfter(states[0]!, now) > 0) {
      if (isFull) {
        this.tellOnce();
        // No count of such a policy must be kept.
        rows.evict(rows.leastUsed(now));
      }
      rows.add(name, states, later(now, retention));
    }
    return true;
  }
}

export function known<T>(all: Map<string, T>, id: string, make: () => T): T {
  const one = all.get(id) ?? make();
  all.set(id, one);
  return one;
}
