import type { Runner } from "../../calls.js";
import type { Core } from "../../core.js";
import { block, type Decision, copied, decide, decideAlone, expiresAfter, peek, refund, settle, unused } from "../../core/decide.js";
import { later } from "../../core/exact.js";
import { type Dimension, Policy } from "../../core/policy.js";
import { Penalty } from "../../core/rules/penalty.js";
import type { Rule, State } from "../../core/rules/rule.js";
import { ALLOWED, REPLAY, STATUS } from "../../numbers.js";
import { BLOCK, CHECK, PEEK, type Question, REFUND, RESET, SETTLE } from "../../question.js";
import { Answers, nameOf } from "./answers.js";
import { Rows } from "./rows.js";

/** The most keys with a count of their own. */
const KEYS_MAX = 1_000_000;

/** How many counts further keys share. */
const SHARES = KEYS_MAX / 8;

/** The counts of all limiters, so that two of the same policy count together, as on every other store: by the id of a dimension. */
const dimensions = new Map<string, Rows>();
const [answers, slots] = [new Answers(), new Answers()];
let keys = 0;
/** Whether keys have shared counts. */
let wasFull = false;
/** Nobody can choose keys that share a count with another's. It is drawn when it is needed: Workers have no randomness before. */
let secret: number | undefined;

/** Where the states of a question's key are, for one dimension. */
interface Place {
  readonly dimension: Dimension;
  readonly rows: Rows;
  readonly key: string;
}

/** Counts in the memory of this process. */
export class Memory implements Runner {
  readonly #core: Core;
  readonly #policy: Policy;
  readonly #rows: readonly Rows[];

  constructor(core: Core) {
    this.#core = core;
    this.#policy = core.policy;
    this.#rows = core.policy.dimensions.map((dimension) => {
      const rows = dimensions.get(dimension.id) ?? new Rows(core.policy, dimension);
      dimensions.set(dimension.id, rows);
      return rows;
    });
  }

  answer(question: Question): true {
    const { sole } = this.#policy;
    if (sole && question.kind === CHECK && question.token === undefined && this.#counted(sole, question)) return true;
    this.#core.verify(question);
    this.#core.decision = this.#answer(question, this.#places(question));
    return true;
  }

  /** Decides on a check by the only quota. Whether the key has a count of its own. */
  #counted(sole: Rule, { key, now, cost }: Question): boolean {
    const rows = this.#rows[0]!;
    const { retention } = this.#policy;
    keys -= rows.tend(now, retention);
    let name = key;
    let place = rows.findText(key);
    if (place === undefined) {
      name = this.#core.keyOf(key);
      place = rows.find(name);
    }
    if (place === undefined && (wasFull || keys >= KEYS_MAX)) return false;
    const states = place === undefined ? [sole.unused()] : rows.states(place);
    this.#core.decision = decideAlone(sole, states[0]!, now, cost);
    if (place !== undefined) {
      rows.store(place, states, later(now, retention));
    } else if (sole.resetAfter(states[0]!, now) > 0) {
      rows.add(name, states, later(now, retention));
      keys += 1;
    }
    return true;
  }

  #answer(question: Question, places: readonly Place[]): Decision {
    const { now, cost, extra, kind, token } = question;
    const policy = this.#policy;
    for (const { rows } of places) keys -= rows.tend(now, policy.retention);
    switch (kind) {
      case PEEK:
        return peek(policy, statesOf(policy, places), now, cost);
      case REFUND:
        return this.#change(now, places, (states) => (refund(policy, states, extra, now, cost), []));
      case BLOCK:
        // A block would be of all keys that share the count.
        if (places.some(({ dimension: { first, end }, rows, key }) => shares(rows, key) && policy.quotas.slice(first, end).some(({ rule }) => rule instanceof Penalty))) {
          throw ["refused", "the memory is full, and a block would be of all keys that share a count"];
        }
        return this.#change(now, places, (states) => (block(policy, states, now, extra), []));
      case RESET:
        for (const { rows, key } of places) {
          if (rows.find(key) !== undefined) keys -= 1;
          rows.delete(key);
        }
        return [];
      case SETTLE:
        return this.#settle(question, places);
    }
    if (token !== undefined) return this.#once(question, token, places);
    return this.#decide(question, places);
  }

  #decide(question: Question, places: readonly Place[]): Decision {
    const { now, cost } = question;
    return this.#change(now, places, (states) => decide(this.#policy, states, now, cost, this.#core.chargeId(question)));
  }

  /** Decides on a check with a token, once. */
  #once(question: Question, token: string, places: readonly Place[]): Decision {
    const { now, cost, extra } = question;
    const [policy, kept, name] = [this.#policy, this.#answers, nameOf(namesOf(places), token)];
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
    const { now, cost, token = "" } = question;
    const policy = this.#policy;
    const charge = this.#answers.take(nameOf(namesOf(places), token), question, this.#core.chargeId(question));
    if (charge) this.#change(now, places, (states) => (settle(policy, states, charge, now, cost < 0 ? charge.cost : cost), []));
    const standing = peek(policy, statesOf(policy, places), now, 0);
    standing[REPLAY] = Number(!charge);
    return standing;
  }

  /** The answers to tokens of this policy. Those that hold slots have room of their own. */
  get #answers(): Answers {
    return this.#policy.holdsSlots ? slots : answers;
  }

  #places({ key, others }: Question): Place[] {
    const { dimensions, group } = this.#policy;
    const keys = [...others, key].map((text) => this.#core.keyOf(text));
    const at = group ? dimensions.indexOf(group) : -1;
    // No key has a bar.
    return dimensions.map((dimension, nth) => ({ dimension, rows: this.#rows[nth]!, key: at < 0 || at === nth ? keys[nth]! : `${keys[at]}|${keys[nth]}` }));
  }

  /** Changes the states of a question's keys, and stores those that have changed. */
  #change(now: number, places: readonly Place[], change: (states: State[]) => Decision): Decision {
    const policy = this.#policy;
    const before = statesOf(policy, places);
    const after = copied(policy.quotas, before);
    const answer = change(after);
    const until = later(now, Math.max(expiresAfter(policy, after, now), policy.retention));
    for (const { dimension, rows, key } of places) {
      const { first, end } = dimension;
      const part = after.slice(first, end);
      if (JSON.stringify(part) === JSON.stringify(before.slice(first, end))) continue;
      if (expiresAfter(policy, after, now, first, end) > 0 || stateOf(rows, key) !== undefined) store(rows, key, part, until);
    }
    return answer;
  }
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
  return rows.find(key) ?? (wasFull ? rows.find(sharedBy(key)) : undefined);
}

function shares(rows: Rows, key: string): boolean {
  return keys >= KEYS_MAX && rows.find(key) === undefined;
}

function store(rows: Rows, key: string, states: State[], until: number): void {
  const isShared = shares(rows, key);
  wasFull ||= isShared;
  const own = isShared ? sharedBy(key) : key;
  const place = rows.find(own);
  if (place !== undefined) return rows.store(place, states, until);
  rows.add(own, states, until);
  keys += 1;
}

/** The name of the count that a key shares. No key is empty or begins with a bar. */
function sharedBy(key: string): string {
  secret ??= crypto.getRandomValues(new Uint32Array(1))[0]!;
  let hash = secret;
  for (let at = 0; at < key.length; at++) {
    hash = Math.imul(hash ^ key.charCodeAt(at), 0x5bd1e995);
    hash ^= hash >>> 15;
  }
  return `|${(hash >>> 0) % SHARES}`;
}

function namesOf(places: readonly Place[]): string[] {
  return places.map(({ dimension: { id }, key }) => `${id}:${key}`);
}
