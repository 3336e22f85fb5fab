import type { Runner } from "../../calls.js";
import type { Rule, State } from "../../core/algorithms/algorithm.js";
import { later } from "../../core/arithmetic.js";
import { block, type Decision, copied, decide, decideAlone, expiresAfter, peek, refund, settle, unused } from "../../core/decide.js";
import { blocks, type Dimension, Policy } from "../../core/policy.js";
import { ALLOWED, REPLAY, STATUS } from "../../decision_numbers.js";
import type { ExactCore } from "../../limiter_core.js";
import { BLOCK, CHECK, PEEK, type Question, REFUND, RESET, SETTLE } from "../../question.js";
import { Answers, nameOf } from "./answers.js";
import { Rows } from "./rows.js";

/** What happens to a key without a count when there are `maxKeys`. */
export const WHEN_FULL = ["evict", "share", "deny"] as const;

/** How much a limiter remembers. */
export interface Bounds {
  /** The most keys of each dimension with a count of their own. */
  maxKeys: number;
  whenFull: (typeof WHEN_FULL)[number];
}

/** The same in a sentence. */
const EFFECTS: Readonly<Record<Bounds["whenFull"], string>> = {
  evict: "a further key takes the place of one that has used little of its limit, which is forgotten",
  share: "further keys share counts",
  deny: "further keys are refused",
};

export const BOUNDS: Bounds = { maxKeys: 1_000_000, whenFull: "evict" };

/** The counts of all limiters, so that two of the same policy count together, as on every other store: by the id of a dimension. */
const dimensions = new Map<string, Rows>();
/** The first answers to tokens, by the id of a policy. */
const answers = new Map<string, Answers>();

/** Forgets the counts of all limiters that are made afterwards. */
export function forget(): void {
  dimensions.clear();
  answers.clear();
}

/** Nobody can choose keys that share a count with another's. It is drawn when it is needed: Workers have no randomness before. */
let secret: number | undefined;

/** Where the states of a question's key are, for one dimension. */
interface Place {
  readonly dimension: Dimension;
  readonly rows: Rows;
  readonly key: string;
  /** The place of the row that makes room for the key's own, if it needs one. */
  room: number | undefined;
}

/** Counts in the memory of this process. */
export class Memory implements Runner {
  readonly #core: ExactCore;
  readonly #rows: readonly Rows[];
  readonly #answers: Answers;
  readonly #maxKeys: number;
  readonly #whenFull: Bounds["whenFull"];
  /** Tells the application what happens to further keys. It is called once. */
  #tell: ((message: string) => void) | undefined;

  constructor(core: ExactCore, { maxKeys, whenFull } = BOUNDS, tell?: (message: string) => void) {
    this.#core = core;
    this.#rows = core.policy.dimensions.map((dimension) => known(dimensions, dimension.id, () => new Rows(core.policy, dimension)));
    this.#answers = known(answers, core.policy.id, () => new Answers());
    [this.#maxKeys, this.#whenFull, this.#tell] = [maxKeys, whenFull, tell];
  }

  answer(question: Question): true {
    const { sole } = question.policy;
    if (sole && question.kind === CHECK && question.token === undefined && this.#counted(sole, question)) return true;
    this.#core.verify(question);
    this.#core.decision = this.#answer(question, this.#places(question));
    return true;
  }

  /** Decides on a check by the only quota. Whether the key has a count of its own, or gets one. */
  #counted(sole: Rule, { key, now, cost, policy: { retention } }: Question): boolean {
    const rows = this.#rows[0]!;
    rows.tend(now, retention);
    let name = key;
    let place = rows.findText(key);
    if (place === undefined) {
      name = this.#core.keyOf(key);
      place = rows.find(name);
    }
    const isFull = place === undefined && rows.size >= this.#maxKeys;
    if (place === undefined && (rows.shares > 0 || (isFull && this.#whenFull !== "evict"))) return false;
    const states = place === undefined ? [sole.unused()] : rows.states(place);
    this.#core.decision = decideAlone(sole, states[0]!, now, cost);
    if (place !== undefined) {
      rows.store(place, states, later(now, retention));
    } else if (sole.resetAfter(states[0]!, now) > 0) {
      if (isFull) {
        this.#tellOnce();
        // No count of such a policy must be kept.
        rows.evict(rows.leastUsed(now)!);
      }
      rows.add(name, states, later(now, retention));
    }
    return true;
  }

  #answer(question: Question, places: Place[]): Decision {
    const { policy, now, cost, extra, kind, token } = question;
    for (const { rows } of places) rows.tend(now, policy.retention);
    if (kind === CHECK || kind === SETTLE || kind === BLOCK) this.#makeRoom(places, now);
    switch (kind) {
      case PEEK:
        return peek(policy, statesOf(policy, places), now, cost);
      case REFUND:
        return this.#change(question, places, (states) => (refund(policy, states, extra, now, cost), []));
      case BLOCK:
        // A block would be of all keys that share the count.
        if (places.some(({ dimension: { first, end }, rows, key }) => this.#shares(rows, key) && policy.quotas.slice(first, end).some(({ rule }) => blocks(rule)))) {
          throw ["refused", "the memory is full, and a block would be of all keys that share a count"];
        }
        return this.#change(question, places, (states) => (block(policy, states, now, extra), []));
      case RESET:
        for (const { rows, key } of places) rows.delete(key);
        return [];
      case SETTLE:
        return this.#settle(question, places);
    }
    if (token !== undefined) return this.#once(question, token, places);
    return this.#decide(question, places);
  }

  #decide(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost } = question;
    return this.#change(question, places, (states) => decide(policy, states, now, cost, this.#core.chargeId(question)));
  }

  /** Decides on a check with a token, once. */
  #once(question: Question, token: string, places: readonly Place[]): Decision {
    const { policy, now, cost, extra } = question;
    const [kept, name] = [this.#answers, nameOf(namesOf(places), token)];
    const first = kept.recall(name, question);
    if (first) {
      first[REPLAY] = 1;
      return first;
    }
    if (policy.holdsSlots && cost > 0 && !kept.hasRoom(now) && peek(policy, statesOf(policy, places), now, cost)[STATUS] === ALLOWED) {
      throw ["refused", "the memory remembers no further slot, and nothing was charged; release slots as soon as requests end"];
    }
    const decision = this.#decide(question, places);
    if (decision[STATUS] === ALLOWED && cost > 0) kept.remember(name, question, Math.max(extra, policy.longestSlot), decision);
    return decision;
  }

  #settle(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost, token = "" } = question;
    const charge = this.#answers.take(nameOf(namesOf(places), token), question, this.#core.chargeId(question));
    if (charge) this.#change(question, places, (states) => (settle(policy, states, charge, now, cost < 0 ? charge.cost : cost), []));
    const standing = peek(policy, statesOf(policy, places), now, 0);
    standing[REPLAY] = Number(!charge);
    return standing;
  }

  /** Chooses what makes room for the keys that have no count, or throws. */
  #makeRoom(places: Place[], now: number): void {
    for (const place of places) {
      if (this.#whenFull === "share" || !this.#isFullFor(place.rows, place.key)) continue;
      this.#tellOnce();
      place.room = this.#whenFull === "evict" ? place.rows.leastUsed(now) : undefined;
      if (place.room === undefined) throw ["refused", `the memory has counts of ${this.#maxKeys} keys, and takes no further one; raise maxKeys`];
    }
  }

  /** Whether a key has no count of its own, and there is no room for one. */
  #isFullFor(rows: Rows, key: string): boolean {
    return rows.size >= this.#maxKeys && rows.find(key) === undefined;
  }

  #shares(rows: Rows, key: string): boolean {
    return this.#whenFull === "share" && this.#isFullFor(rows, key);
  }

  #tellOnce(): void {
    this.#tell?.(`the memory has counts of ${this.#maxKeys} keys, and there are more: ${EFFECTS[this.#whenFull]}; raise maxKeys`);
    this.#tell = undefined;
  }

  #places({ key, others, policy: { dimensions, group } }: Question): Place[] {
    const keys = [...others, key].map((text) => this.#core.keyOf(text));
    const at = group ? dimensions.indexOf(group) : -1;
    // No key has a bar.
    const keyAt = (nth: number) => (at < 0 || at === nth ? keys[nth]! : `${keys[at]}|${keys[nth]}`);
    return dimensions.map((dimension, nth) => ({ dimension, rows: this.#rows[nth]!, key: keyAt(nth), room: undefined }));
  }

  /** Changes the states of a question's keys, and stores those that have changed. */
  #change({ policy, now }: Question, places: readonly Place[], change: (states: State[]) => Decision): Decision {
    const before = statesOf(policy, places);
    const after = copied(policy.quotas, before);
    const answer = change(after);
    const until = later(now, Math.max(expiresAfter(policy, after, now), policy.retention));
    for (const place of places) {
      const { first, end } = place.dimension;
      const part = after.slice(first, end);
      if (JSON.stringify(part) === JSON.stringify(before.slice(first, end))) continue;
      if (expiresAfter(policy, after, now, first, end) > 0 || stateOf(place.rows, place.key) !== undefined) this.#store(place, part, until);
    }
    return answer;
  }

  #store({ rows, key, room }: Place, states: State[], until: number): void {
    const isShared = this.#shares(rows, key);
    if (isShared) {
      this.#tellOnce();
      rows.shares ||= Math.max(Math.floor(this.#maxKeys / 8), 1);
    }
    const own = isShared ? sharedBy(key, rows.shares) : key;
    const place = rows.find(own);
    if (place !== undefined) return rows.store(place, states, until);
    if (room !== undefined) rows.evict(room);
    rows.add(own, states, until);
  }
}

function known<T>(all: Map<string, T>, id: string, make: () => T): T {
  const one = all.get(id) ?? make();
  all.set(id, one);
  return one;
}

/** Copies the states of a question's keys. */
function statesOf(policy: Policy, places: readonly Place[]): State[] {
  const fresh = unused(policy);
  return places.flatMap(({ dimension: { first, end }, rows, key }) => {
    const place = stateOf(rows, key);
    return place === undefined ? fresh.slice(first, end) : copied(policy.quotas.slice(first, end), rows.states(place));
  });
}

/** The row of a key, or the one that it has shared: then it starts with what was used there. */
function stateOf(rows: Rows, key: string): number | undefined {
  return rows.find(key) ?? (rows.shares > 0 ? rows.find(sharedBy(key, rows.shares)) : undefined);
}

/** The name of the count that a key shares. No key is empty or begins with a bar. */
function sharedBy(key: string, shares: number): string {
  secret ??= crypto.getRandomValues(new Uint32Array(1))[0]!;
  let hash = secret;
  for (let at = 0; at < key.length; at++) {
    hash = Math.imul(hash ^ key.charCodeAt(at), 0x5bd1e995);
    hash ^= hash >>> 15;
  }
  return `|${(hash >>> 0) % shares}`;
}

function namesOf(places: readonly Place[]): string[] {
  return places.map(({ dimension: { id }, key }) => `${id}:${key}`);
}
