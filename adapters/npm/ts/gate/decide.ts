import type { AddressSource } from "../core/address.js";
import type { Decision } from "../core/decide.js";
import { type Sent, sent } from "../core/sent.js";
import { invalid, isStoreFailure, TidegateError } from "../error.js";
import { ALLOWED, BINDING, EACH, QUOTAS, STATUS, STATUSES, UNKNOWN, WAIT } from "../numbers.js";
import type { Composed } from "./around/compose.js";
import { suits } from "./around/suits.js";
import type { Check } from "./asked.js";
import type { Events, Said } from "./events.js";
import type { Facts } from "./facts.js";
import type { RulesPolicy } from "./policy.js";
import { appliedTo, costOf, limitingOf, opens, policyFor, policyOf } from "./rules/find.js";
import type { Rule, Rules } from "./rules/rules.js";
import { Sender } from "./sender.js";
import type { Held, Outcome, Told } from "./verdict.js";

/** What a store is asked about a request, because of a rule. */
interface Ask {
  readonly rule: string;
  /** The place of the store. */
  readonly store: number;
  readonly check: Check;
}

/** A request that stores have to decide on: one, or one after another until one denies. */
export interface Pending {
  readonly asks: readonly [Ask, ...Ask[]];
  readonly isOpen: boolean;
  /** Whether the charge is settled to another cost. */
  readonly isEstimate: boolean;
}

/** What a request did cost, the same by each rule: a cost, undefined for what each has charged, or what each returns of it. */
export type Actual = readonly [cost: number | undefined] | { readonly returned: number };

const UNLIMITED: Told = { outcome: "unlimited", sent: () => ({ status: 0, headers: {}, body: "" }) };

/** Decides on requests by the rules of one file. */
export class Decider {
  readonly rules: Rules;
  readonly composed: readonly Composed[];
  readonly source: AddressSource;
  /** The names of the stores. */
  readonly #stores: readonly string[];
  readonly #settleWithinMs: number;
  readonly #events: Events;

  constructor(rules: Rules, composed: readonly Composed[], stores: readonly string[], source: AddressSource, settleWithinMs: number, events: Events) {
    this.rules = rules;
    this.composed = composed;
    this.source = source;
    this.#stores = stores;
    this.#settleWithinMs = settleWithinMs;
    this.#events = events;
  }

  /** The rules that apply to a request: one, unless readings of its path have different ones. */
  applied(facts: Facts): readonly Rule[] {
    return appliedTo(this.rules, facts, facts.paths);
  }

  /** The sender of a request, as far as it is known before its token is verified. */
  sender(facts: Facts): Sender {
    const [first, second] = this.source.fields;
    return new Sender(this.rules, facts, this.source.find(first && facts.field(first), second && facts.field(second), facts.given.peer));
  }

  /** Finds what applies to a request, and asks no store yet. */
  prepare(facts: Facts, applied: readonly Rule[], sender: Sender): Told | Pending {
    const { rules } = this;
    const [{ cost, isEstimate }, { now }] = [facts.given, facts];
    const isTimed = facts.given.now !== undefined;
    const [first] = applied;
    if (!first) return UNLIMITED;
    if (sender.isOn(rules.denied)) return this.#refused(first, now, "listed", 403, { error: "forbidden" });
    // An allowed sender is not limited, but its token is no more valid.
    const refusing = typeof sender.claims === "string" ? applied.find(({ refusesInvalidTokens }) => refusesInvalidTokens) : undefined;
    if (refusing) return this.#refused(refusing, now, "invalid_token", 401, { error: "invalid_token" }, { "www-authenticate": 'Bearer error="invalid_token"' });
    if (sender.isOn(rules.allowed)) return UNLIMITED;
    const challenging = applied.find(({ challenge }) => challenge !== undefined);
    if (challenging) return this.#refused(challenging, now, "challenged", 403, { error: "challenge", url: challenging.challenge });
    const { tier } = sender;
    const limiting = limitingOf(applied, tier);
    const [rule] = limiting;
    if (!rule) return UNLIMITED;
    const estimates = isEstimate || limiting.some(({ estimate }) => estimate !== undefined);
    const within = limiting.flatMap(({ settleWithinMs }) => settleWithinMs ?? []);
    const isOpen = opens(applied, tier);
    const ask = ({ name, lease }: Rule, store: number, policy: RulesPolicy, usual: number): Ask => {
      // A slot is given back within its lifetime, and a store remembers its charge for at least that.
      const ttlMs = within.length > 0 ? Math.max(...within) : estimates || !policy.holdsSlots ? this.#settleWithinMs : 0;
      return { rule: name, store, check: { policy, keys: sender.keys(policy), cost: cost ?? usual, now, isTimed, token: undefined, ttlMs, lease } };
    };
    try {
      const charged = this.#together(applied, limiting, tier);
      const asks = charged
        ? [ask(rule, ...charged, costOf(applied, tier))]
        : limiting.map((rule) => ask(rule, this.#place(rule), policyOf(rule, tier)!, rule.cost));
      return { asks: asks as [Ask, ...Ask[]], isOpen, isEstimate: estimates };
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.#events.refused(rule.name, now, "failed_closed", error.kind);
      return failed(error, isOpen);
    }
  }

  /** Asks the stores for the decision on a request, which is charged under the token. */
  async decide({ asks, isOpen }: Pending, token: string | undefined): Promise<Told> {
    const charged = asks.map((ask) => (token === undefined ? ask : { ...ask, check: { ...ask.check, token } })) as [Ask, ...Ask[]];
    let said = await this.#ask(charged[0], isOpen);
    for (let nth = 1; nth < charged.length && passes(said); nth++) {
      // The others have taken their time.
      const { check, ...rest } = charged[nth]!;
      const next = await this.#ask({ ...rest, check: check.isTimed ? check : { ...check, now: Date.now() } }, isOpen);
      // As of several quotas, the one with the fewest remaining is told.
      said = !passes(next) || left(next) < left(said) ? next : said;
      if (!passes(next)) await this.#return(charged.slice(0, nth));
    }
    const { check, decision, error } = said;
    const { rule } = asks[0];
    if (!decision) return { ...failed(error!, isOpen), rule };
    const { responses } = this.rules;
    return {
      outcome: STATUSES[decision[STATUS]!]!,
      rule,
      decision,
      names: asks.length === 1 ? check.policy.quotas.map(({ name }) => name) : undefined,
      sent: () => sent(check.policy, spread(decision, responses.spreadMs), responses),
      ...(token !== undefined && passes(said) && { hold: charged.map(({ store, check: { policy, keys, cost } }) => ({ store, policy, keys, cost })), token, cost: asks[0].check.cost }),
    };
  }

  /** Corrects what a request was charged to its actual cost, or gives back its slots if that is undefined. */
  async settle(held: readonly Held[], token: string, actual: Actual, now: number): Promise<Told> {
    let decision: Decision | undefined;
    let failure: unknown;
    for (const { store, policy, keys, cost: charged } of held) {
      try {
        const cost = "returned" in actual ? Math.max(charged - actual.returned, 0) : actual[0];
        const settled = await this.composed[store]!.limiter.settle({ policy, keys, token, cost, now });
        decision ??= settled;
      } catch (thrown) {
        failure ??= thrown;
      }
    }
    if (failure !== undefined) throw failure;
    const names = held.length === 1 ? held[0]!.policy.quotas.map(({ name }) => name) : undefined;
    return { outcome: STATUSES[decision![STATUS]!]!, decision, names, sent: () => ({ status: 503, headers: {}, body: "" }) };
  }

  /** The store and the policy of all rules that limit a tier, if one store can decide by all of them at once. */
  #together(applied: readonly Rule[], limiting: readonly Rule[], tier: number | undefined): [store: number, policy: RulesPolicy] | undefined {
    const store = this.#place(limiting[0]!);
    if (!limiting.every((rule) => this.#place(rule) === store)) return undefined;
    if (applied.length === 1) return [store, policyOf(limiting[0]!, tier)!];
    const { capabilities } = this.composed[store]!.limiter;
    try {
      const all = policyFor(this.rules, applied, tier)!;
      const policy = capabilities.dimensions === "grouped" ? all.placed : all;
      suits(capabilities, policy);
      return [store, policy];
    } catch {
      return undefined;
    }
  }

  #place({ store }: Rule): number {
    return store === undefined ? 0 : this.#stores.indexOf(store);
  }

  async #ask({ rule, store, check }: Ask, isOpen: boolean): Promise<Said> {
    const started = performance.now();
    let said: Said;
    try {
      said = { check, decision: await this.composed[store]!.limiter.check(check), isOpen: false };
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      said = { check, error, isOpen: isOpen && isStoreFailure(error) };
    }
    this.#events.decided(rule, said, started);
    return said;
  }

  /** Returns what was charged if it has a token. Otherwise, it stays charged. */
  async #return(asks: readonly Ask[]): Promise<void> {
    for (const { store, check } of asks) {
      const { policy, keys, now, token } = check;
      if (token !== undefined) await this.composed[store]!.limiter.settle({ policy, keys, token, cost: 0, now }).catch(() => undefined);
    }
  }

  #refused({ name }: Rule, now: number, outcome: Outcome & ("listed" | "invalid_token" | "challenged"), status: number, body: object, fields = {}): Told {
    this.#events.refused(name, now, outcome);
    return { outcome, sent: () => response(status, body, fields) };
  }
}

/** The verdict on a request that the application is not set up to decide on. */
export function misconfigured({ asks }: Pending): Told {
  const { message } = invalid("peer", "the platform needs the address of the connection; write limit(gate, { peer }) or { check: () => ({ peer }) }");
  const sent = () => response(500, { error: "limiter_misconfigured" });
  return { outcome: "failed_closed", rule: asks[0].rule, error: TidegateError.from(["misconfigured", message]), sent };
}

/** The verdict on a request that was not decided on. It passes only after a failure of the store. */
function failed(error: TidegateError, isOpen: boolean): Told {
  const { kind } = error;
  if (isOpen && isStoreFailure(error)) return { outcome: "failed_open", error, sent: () => ({ status: 0, headers: { "x-tidegate-failed-open": kind }, body: "" }) };
  return { outcome: "failed_closed", error, sent: () => response(503, { error: "limiter_unavailable", kind }) };
}

export function response(status: number, body: object, fields: Record<string, string> = {}): Sent {
  return { status, headers: { ...fields, "content-type": "application/json" }, body: JSON.stringify(body) };
}

function passes({ decision, isOpen }: Said): boolean {
  return decision ? decision[STATUS] === ALLOWED : isOpen;
}

/** How many requests remain. */
function left({ decision }: Said): number {
  const remaining = decision ? decision[QUOTAS + EACH * decision[BINDING]! + 1]! : 0;
  return remaining === UNKNOWN ? Infinity : remaining;
}

/** The same denial with a wait that is longer by a random time. */
function spread(decision: Decision, most: number): Decision {
  if (most === 0 || decision[WAIT] === UNKNOWN) return decision;
  const later = [...decision];
  later[WAIT]! += Math.floor(Math.random() * (most + 1));
  return later;
}
