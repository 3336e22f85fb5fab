import type { Runner } from "../../calls.js";
import type { Rule, State } from "../../core/algorithms/algorithm.js";
import { later } from "../../core/arithmetic.js";
import { block, type Decision, copied, decide, decideAlone, expiresAfter, grant, peek, refund, settle, unused } from "../../core/decide.js";
import { blocks, type Dimension, Policy } from "../../core/policy.js";
import { ALLOWED, REPLAY, STATUS } from "../../decision_numbers.js";
import type { ExactCore } from "../../limiter_core.js";
import { BLOCK, CHECK, GRANT, PEEK, type Question, REFUND, RESET, SETTLE } from "../../question.js";
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
  /** The rows of each dimension, or of each row of a policy with a balance, by its id. */
  readonly #rows: ReadonlyMap<string, Rows>;
  /** Those of the first one. */
  readonly #first: Rows;
  readonly #answers: Answers;
  readonly #maxKeys: number;
  readonly #whenFull: Bounds["whenFull"];
  /** Tells the application what happens to further keys. It is called once. */
  #tell: ((message: string) => void) | undefined;

  constructor(core: ExactCore, { maxKeys, whenFull } = BOUNDS, tell?: (message: string) => void) {
    this.#core = core;
    this.#rows = new Map(core.policy.rows.map((dimension) => [dimension.id, known(dimensions, dimension.id, () => new Rows(core.policy, dimension))]));
    [this.#first] = this.#rows.values() as Iterable<Rows> as [Rows];
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
    const rows = this.#first;
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
    if (kind === CHECK || kind === SETTLE || kind === BLOCK || kind === GRANT) this.#makeRoom(places.filter((place) => isNeeded(question, place)), now);
    switch (kind) {
      case PEEK:
        return peek(policy, statesOf(policy, places), now, cost);
      case REFUND:
        return this.#change(question, places, (states) => (refund(policy, states, extra, now, cost), []));
      case BLOCK:
        // A block would be of all keys that share the count.
        if (places.some(({ dimension: { first, end }, rows, key }) => this.#shares(rows, key) && policy.quotas.slice(first, end).some(({ rule }) => blocks(rule)))) {
          throw shared("a block");
        }
        return this.#change(question, places, (states) => (block(policy, states, now, extra), []));
      case RESET:
        for (const place of places) if (!isOfBalance(question, place)) place.rows.delete(place.key);
        return [];
      case GRANT:
        return this.#grant(question, places);
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
    const before = policy.balance && statesOf(policy, places);
    const decision = this.#decide(question, places);
    const paid = before && policy.balance!.paid(policy.quotas, before, decision);
    if (decision[STATUS] === ALLOWED && cost > 0) kept.remember(name, question, Math.max(extra, policy.longestSlot), decision, paid);
    return decision;
  }

  #settle(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost, token = "" } = question;
    const charge = this.#answers.take(nameOf(namesOf(places), token), question, this.#core.chargeId(question));
    if (charge) this.#change(question, places, (states) => (settle(policy, states, charge, now, cost < 0 ? charge.cost : cost), []));
    return standing(policy, places, now, !charge);
  }

  /** Grants units, once for each token. */
  #grant(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost, token = "", expires } = question;
    const { rows, key } = places[policy.balance!.row(policy)]!;
    // The other quotas may change before the grant is repeated.
    const isReplay = policy.balance!.parts.once(rows, nameOf([key], token), question, () => {
      if (this.#shares(rows, key)) throw shared("a grant");
      this.#change(question, places, (states) => (grant(policy, states, now, cost, expires), []));
    });
    return standing(policy, places, now, isReplay);
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

  #places({ key, others, policy: { dimensions, rows, group } }: Question): Place[] {
    const keys = [...others, key].map((text) => this.#core.keyOf(text));
    const at = group ? dimensions.indexOf(group) : -1;
    // No key has a bar.
    const keyAt = (nth: number) => (at < 0 || at === nth ? keys[nth]! : `${keys[at]}|${keys[nth]}`);
    return rows.map((dimension) => {
      const nth = dimensions.findIndex(({ end }) => dimension.first < end);
      return { dimension, rows: this.#rows.get(dimension.id)!, key: keyAt(nth), room: undefined };
    });
  }

  /** Changes the states of a question's keys, and stores those that have changed. */
  #change({ policy, now }: Question, places: readonly Place[], change: (states: State[]) => Decision): Decision {
    const before = statesOf(policy, places);
    const after = copied(policy.quotas, before);
    const answer = change(after);
    for (const place of places) {
      const { first, end } = place.dimension;
      const part = after.slice(first, end);
      if (JSON.stringify(part) === JSON.stringify(before.slice(first, end))) continue;
      // Each row for its own time: a balance may last for years.
      const lasts = expiresAfter(policy, after, now, first, end);
      if (lasts > 0 || stateOf(place.rows, place.key) !== undefined) this.#store(place, part, later(now, Math.max(lasts, policy.retention)));
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

/** Whether a place is that of a balance. */
function isOfBalance({ policy: { quotas, balance } }: Question, { dimension }: Place): boolean {
  return balance !== undefined && quotas[dimension.first]!.rule === balance;
}

/** Whether a question may add a row at a place. A check adds no balance, and a grant nothing else. */
function isNeeded(question: Question, place: Place): boolean {
  const { kind, policy } = question;
  return !policy.balance || kind === SETTLE || isOfBalance(question, place) === (kind === GRANT);
}

/** The error of what would be done to all keys that share a count. */
function shared(what: string): unknown {
  return ["refused", `the memory is full, and ${what} would be of all keys that share a count`];
}

/** What a request of cost 0 would get. */
function standing(policy: Policy, places: readonly Place[], now: number, isReplay: boolean): Decision {
  const decision = peek(policy, statesOf(policy, places), now, 0);
  decision[REPLAY] = Number(isReplay);
  return decision;
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
