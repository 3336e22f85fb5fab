import { blocks, type Policy } from "../../core/policy.js";
import type { State } from "../../core/algorithms/algorithm.js";
import { block, type Decision, grant, peek, refund, settle } from "../../core/decide.js";
import { ALLOWED, REPLAY, STATUS } from "../../decision_numbers.js";
import { chargeIdOf, type ExactCore } from "../../limiter_core.js";
import { checkQuestion } from "../../core/valid_question.js";
import { BLOCK, CHECK, GRANT, PEEK, type Question, REFUND, RESET, SETTLE } from "../../question.js";
import { Answers, nameOf } from "./answers.js";
import { EVICTS, forgetCounts, known, MAX_KEYS } from "./checks.js";
import type { Rows } from "./rows.js";
import { AllChecks, type Place } from "./several.js";

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
  evict: EVICTS,
  share: "further keys share counts",
  deny: "further keys are refused",
};

export const BOUNDS: Bounds = { maxKeys: MAX_KEYS, whenFull: "evict" };

/** The first answers to tokens, by the id of a policy. */
const answers = new Map<string, Answers>();

/** Forgets the counts of all limiters that are made afterwards. */
export function forget(): void {
  forgetCounts();
  answers.clear();
}

/** Nobody can choose keys that share a count with another's. It is drawn when it is needed: Workers have no randomness before. */
let secret: number | undefined;

/** Counts in the memory of this process, and answers all questions. */
export class Memory extends AllChecks {
  readonly #answers: Answers;
  readonly #whenFull: Bounds["whenFull"];
  protected override readonly evicts: boolean;
  protected override readonly effect: string;

  constructor(core: ExactCore, { maxKeys, whenFull } = BOUNDS, tell?: (message: string) => void) {
    super(core, maxKeys, tell);
    this.#answers = known(answers, core.policy.id, () => new Answers());
    [this.#whenFull, this.evicts, this.effect] = [whenFull, whenFull === "evict", EFFECTS[whenFull]];
  }

  protected override decision(question: Question): Decision {
    const places = this.places(question);
    checkQuestion(this.core.policy, question);
    const { policy, now, cost, extra, kind, token } = question;
    this.tend(question, places);
    if (kind === CHECK || kind === SETTLE || kind === BLOCK || kind === GRANT) this.makeRoom(places.filter((place) => isNeeded(question, place)), now);
    switch (kind) {
      case PEEK:
        return peek(policy, this.statesOf(policy, places), now, cost);
      case REFUND:
        return this.change(question, places, (states) => (refund(policy, states, extra, now, cost), []));
      case BLOCK:
        // A block would be of all keys that share the count.
        if (places.some(({ dimension: { first, end }, rows, key }) => this.#shares(rows, key) && policy.quotas.slice(first, end).some(({ rule }) => blocks(rule)))) {
          throw shared("a block");
        }
        return this.change(question, places, (states) => (block(policy, states, now, extra), []));
      case RESET:
        for (const place of places) if (!isOfBalance(question, place)) place.rows.evict(place.rows.find(place.key));
        return [];
      case GRANT:
        return this.#grant(question, places);
      case SETTLE:
        return this.#settle(question, places);
    }
    if (token !== undefined) return this.#once(question, token, places);
    return this.decide(question, places);
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
    if (policy.holdsSlots && cost > 0 && !kept.hasRoom(now) && peek(policy, this.statesOf(policy, places), now, cost)[STATUS] === ALLOWED) {
      throw ["refused", "the memory remembers no further slot, and nothing was charged; release slots as soon as requests end"];
    }
    const before = policy.balance && this.statesOf(policy, places);
    const decision = this.decide(question, places);
    const paid = before && policy.balance!.paid(policy.quotas, before, decision);
    if (decision[STATUS] === ALLOWED && cost > 0) kept.remember(name, question, Math.max(extra, policy.longestSlot), decision, paid);
    return decision;
  }

  #settle(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost, token = "" } = question;
    const charge = this.#answers.take(nameOf(namesOf(places), token), question, chargeIdOf(question));
    if (charge) this.change(question, places, (states) => (settle(policy, states, charge, now, cost < 0 ? charge.cost : cost), []));
    return this.#standing(policy, places, now, !charge);
  }

  /** Grants units, once for each token. */
  #grant(question: Question, places: readonly Place[]): Decision {
    const { policy, now, cost, token = "", expires } = question;
    const { rows, key } = places[policy.balance!.row(policy)]!;
    // The other quotas may change before the grant is repeated.
    const isReplay = policy.balance!.parts.once(rows, nameOf([key], token), question, () => {
      if (this.#shares(rows, key)) throw shared("a grant");
      this.change(question, places, (states) => (grant(policy, states, now, cost, expires), []));
    });
    return this.#standing(policy, places, now, isReplay);
  }

  protected override makeRoom(places: Place[], now: number): void {
    if (this.#whenFull !== "share") super.makeRoom(places, now);
  }

  protected override sharesOrRefuses(rows: Rows, isFull: boolean): boolean {
    return rows.shares > 0 || (isFull && !this.evicts);
  }

  #shares(rows: Rows, key: string): boolean {
    return this.#whenFull === "share" && this.isFullFor(rows, key);
  }

  protected override store({ dimension, rows, key, room }: Place, states: State[], until: number): void {
    const isShared = this.#shares(rows, key);
    if (isShared) {
      this.tellOnce();
      rows.shares ||= Math.max(Math.floor(this.maxKeys / 8), 1);
    }
    super.store({ dimension, rows, key: isShared ? sharedBy(key, rows.shares) : key, room }, states, until);
  }

  /** The row of a key, or the one that it has shared: then it starts with what was used there. */
  protected override stateOf(rows: Rows, key: string): number | undefined {
    return rows.find(key) ?? (rows.shares > 0 ? rows.find(sharedBy(key, rows.shares)) : undefined);
  }

  /** What a request of cost 0 would get. */
  #standing(policy: Policy, places: readonly Place[], now: number, isReplay: boolean): Decision {
    const decision = peek(policy, this.statesOf(policy, places), now, 0);
    decision[REPLAY] = Number(isReplay);
    return decision;
  }
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
