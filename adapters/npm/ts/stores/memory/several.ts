import type { State } from "../../core/algorithms/algorithm.js";
import { later } from "../../core/arithmetic.js";
import { copied, type Decision, decide, expiresAfter, unused } from "../../core/decide.js";
import { keyOf } from "../../core/key.js";
import { type Dimension, Policy, type ReadyPolicy } from "../../core/policy.js";
import type { Fields } from "../../fields.js";
import type { DecidingKind, LoadedPolicy, LoadedQuota } from "../../loaded_policy.js";
import { loadedRule } from "../../parts_limiter.js";
import { chargeIdOf } from "../../limiter_core.js";
import { CHECK, type Question } from "../../question.js";
import { Checks } from "./checks.js";
import type { Rows } from "./rows.js";

/** Marks several quotas. The application may have loaded this module twice. */
const ALL_OF = Symbol.for("@tidegate/edge/all-of");

/** How several quotas are decided. */
interface Deciding {
  policy(parts: ReadyPolicy): Policy;
  readonly Checks: typeof Checks;
}

/** One to eight quotas that are decided in one step: see `allOf`. */
export interface AllOf<Kind extends DecidingKind = DecidingKind> extends ReadonlyArray<LoadedQuota<Kind>> {
  /** Only this package reads it. */
  readonly [ALL_OF]: object;
}

/**
 * The quotas of a `RateLimiter` that counts by several. If one denies a request, none is charged:
 *
 *     const policy = { name: "api", quotas: allOf(slidingWindow(100, "1 min"), tokenBucket(20, 2, "1 s")) };
 *
 * A limiter of one quota leaves out what this loads. Other stores take it as they take an array.
 */
export function allOf<Kind extends DecidingKind>(...quotas: LoadedQuota<Kind>[]): AllOf<Kind> {
  const deciding: Deciding = { policy: (parts) => new Policy(parts, loadedRule), Checks: AllChecks };
  return Object.assign(quotas, { [ALL_OF]: deciding });
}

/** What decides by the quotas of a limiter's options, if they are several. */
export function decidingOf(fields: Fields): Deciding | undefined {
  return (fields.get("policy") as { quotas?: { [ALL_OF]?: Deciding } } | undefined)?.quotas?.[ALL_OF];
}

/** The quotas of a policy that counts by one. It may be declared apart, as an array. */
type OneQuota = readonly LoadedQuota[] & { readonly 0?: LoadedQuota; readonly 1?: "write allOf(…) for several quotas" };

/** The policy of a `RateLimiter` in memory. */
export interface MemoryPolicy extends Omit<LoadedPolicy, "quotas"> {
  /** One quota in an array, or `allOf` several. */
  quotas: OneQuota | AllOf;
}

/** Where the states of a question's key are, for one dimension. */
export interface Place {
  readonly dimension: Dimension;
  readonly rows: Rows;
  readonly key: string;
  /** The place of the row that makes room for the key's own, if it needs one. */
  room: number | undefined;
}

/** Decides on checks by any policy, and counts them in the memory of this process. What else a limiter does is in `Memory`. */
export class AllChecks extends Checks {
  /** Whether a further key takes the place of another, if there are `maxKeys`. */
  protected readonly evicts: boolean = true;

  protected override decision(question: Question): Decision {
    if (question.kind !== CHECK || question.token !== undefined) return super.decision(question);
    const places = this.places(question);
    this.tend(question, places);
    this.makeRoom(places, question.now);
    return this.decide(question, places);
  }

  protected tend({ now, policy }: Question, places: readonly Place[]): void {
    for (const { rows } of places) rows.tend(now, policy.retention);
  }

  protected decide(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost } = question;
    return this.change(question, places, (states) => decide(policy, states, now, cost, chargeIdOf(question)));
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

  protected places({ key, others, policy: { dimensions, rows, group, isOfGate } }: Question): Place[] {
    const keys = [...others, key].map((text) => keyOf(text, isOfGate));
    const at = group ? dimensions.indexOf(group) : -1;
    // No key has a bar.
    const keyAt = (nth: number) => (at < 0 || at === nth ? keys[nth]! : `${keys[at]}|${keys[nth]}`);
    return rows.map((dimension) => {
      const nth = dimensions.findIndex(({ end }) => dimension.first < end);
      return { dimension, rows: this.rows.get(dimension.id)!, key: keyAt(nth), room: undefined };
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
    rows.evict(room);
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
