import type { AddressSource } from "../core/address.js";
import type { Decision } from "../core/decide.js";
import { response, unavailable, undecided } from "../core/response.js";
import { sent } from "../core/response_look.js";
import { ALLOWED, BINDING, EACH, QUOTAS, STATUS, UNKNOWN, WAIT } from "../decision_numbers.js";
import { isStoreFailure, needsPeer, TidegateError } from "../error.js";
import { ask, CHECK, type Question, SETTLE, timed } from "../question.js";
import { type Outcome, outcomeOf, type VerdictParts } from "../verdict.js";
import type { Composed } from "./combinators/compose.js";
import { checkPolicy } from "./combinators/store_support.js";
import type { Events, StoreAnswer } from "./events.js";
import type { Facts } from "./request_facts.js";
import { appliedTo, costOf, limitingOf, opens, policyFor, policyOf } from "./rules/find_rules.js";
import type { Rule, Rules } from "./rules/rules.js";
import type { RulesPolicy } from "./rules_policy.js";
import { Sender } from "./sender.js";

/** What a store is asked about a request, because of a rule. */
interface Ask {
  readonly rule: string;
  /** The place of the store. */
  readonly store: number;
  readonly check: Question;
  /** The place of the sender's tier. */
  readonly tier: number | undefined;
}

/** A request that stores have to decide on: one, or one after another until one denies. */
export interface Pending {
  readonly asks: readonly [Ask, ...Ask[]];
  readonly isOpen: boolean;
}

const UNLIMITED: VerdictParts = { outcome: "unlimited", sent: { status: 0, headers: {}, body: "" } };

/** Decides on requests by the rules of one file. */
export class Decider {
  readonly rules: Rules;
  readonly composed: readonly Composed[];
  readonly source: AddressSource;
  /** The names of the stores. */
  readonly stores: readonly string[];
  readonly #settleWithinMs: number;
  readonly #events: Events;

  constructor(rules: Rules, composed: readonly Composed[], stores: readonly string[], source: AddressSource, settleWithinMs: number, events: Events) {
    this.rules = rules;
    this.composed = composed;
    this.source = source;
    this.stores = stores;
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
    return new Sender(this.rules, facts, this.source.find(first && facts.field(first), second && facts.field(second), facts.options.peer ?? undefined));
  }

  /** Finds what applies to a request, and asks no store yet. */
  prepare(facts: Facts, applied: readonly Rule[], sender: Sender): VerdictParts | Pending {
    const { rules } = this;
    const { numbers } = rules;
    const [{ options, now }, { tier }] = [facts, sender];
    const [first] = applied;
    if (!first) return UNLIMITED;
    if (sender.isOn(rules.denied)) return this.#refused(first, now, "listed", 403, { error: "forbidden" });
    // An allowed sender is not limited, but its token is no more valid.
    const refusing = typeof sender.claims === "string" ? applied.find(({ refusesInvalidTokens }) => refusesInvalidTokens) : undefined;
    if (refusing) return this.#refused(refusing, now, "invalid_token", 401, { error: "invalid_token" }, { "www-authenticate": 'Bearer error="invalid_token"' });
    if (sender.isOn(rules.allowed)) return UNLIMITED;
    const challenging = applied.find(({ challenge }) => challenge !== undefined);
    if (challenging) return this.#refused(challenging, now, "challenged", 403, { error: "challenge", url: challenging.challenge });
    const limiting = limitingOf(applied, tier);
    const [rule] = limiting;
    if (!rule) return UNLIMITED;
    const estimates = options.estimate !== undefined || limiting.some(({ estimate }) => estimate !== undefined);
    const within = limiting.flatMap(({ settleWithinMs }) => settleWithinMs ?? []);
    const isOpen = opens(applied, tier);
    const about = ({ name, lease }: Rule, store: number, common: RulesPolicy, usual: number): Ask => {
      const keys = sender.keys(common);
      const policy = numbers?.policy(common, sender) ?? common;
      const check = { ...ask(CHECK, policy, now), keys, cost: options.cost ?? usual, isTimed: options.now !== undefined, lease };
      return { rule: name, store, check, tier };
    };
    try {
      const charged = this.#together(applied, limiting, tier);
      const asks = charged
        ? [about(rule, ...charged, costOf(applied, tier))]
        : limiting.map((rule) => about(rule, this.place(rule), policyOf(rule, tier)!, rule.cost));
      // The server makes the token: a client that chooses it could repeat a request for free.
      const token = options.token ?? (estimates || asks.some(({ check }) => check.policy.holdsSlots) ? crypto.randomUUID() : undefined);
      if (token !== undefined) {
        for (const { check } of asks) {
          // A slot is given back within its lifetime, and a store remembers its charge for at least that.
          const usual = estimates || !check.policy.holdsSlots ? this.#settleWithinMs : 0;
          [check.token, check.extra] = [token, within.length > 0 ? Math.max(...within) : usual];
        }
      }
      return { asks: asks as [Ask, ...Ask[]], isOpen };
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      this.#events.refused(rule.name, now, "failed_closed", error.kind);
      return failed(error, isOpen);
    }
  }

  /** Asks the stores for the decision on a request. */
  async decide({ asks, isOpen }: Pending): Promise<VerdictParts> {
    let said = await this.#ask(asks[0], isOpen);
    let { level } = said;
    for (let nth = 1; nth < asks.length && passes(said); nth++) {
      const next = await this.#ask(asks[nth]!, isOpen);
      level = Math.max(level, next.level);
      // As of several quotas, the one with the fewest remaining is told.
      said = !passes(next) || left(next) < left(said) ? next : said;
      if (!passes(next)) await this.#return(asks.slice(0, nth));
    }
    const { check, decision, error } = said;
    const { rule, check: first } = asks[0];
    if (!decision) return { ...failed(error!, isOpen), rule };
    const { responses } = this.rules;
    const { token, cost } = first;
    const isHeld = token !== undefined && passes(said);
    return {
      outcome: outcomeOf(decision),
      rule,
      level,
      decision,
      names: asks.length === 1 ? check.policy.names : undefined,
      sent: (decision) => sent(check.policy, spread(decision, responses.spreadMs), responses),
      ...(isHeld && {
        charge: { token, cost },
        held: asks.map((asked) => {
          const { policy, keys, cost } = asked.check;
          return { store: asked.store, policy, keys: keys!, cost, settled: (decision, check, charged) => this.rules.thresholds?.charged({ ...asked, check }, decision, check.cost - charged, true, this.#events) };
        }),
        holdsSlots: asks.some(({ check }) => check.policy.holdsSlots),
      }),
    };
  }

  /** The store and the policy of all rules that limit a tier, if one store can decide by all of them at once. */
  #together(applied: readonly Rule[], limiting: readonly Rule[], tier: number | undefined): [store: number, policy: RulesPolicy] | undefined {
    const store = this.place(limiting[0]!);
    if (!limiting.every((rule) => this.place(rule) === store)) return undefined;
    if (applied.length === 1) return [store, policyOf(limiting[0]!, tier)!];
    const { capabilities } = this.composed[store]!.layer;
    try {
      const all = policyFor(this.rules, applied, tier)!;
      const policy = capabilities.dimensions === "grouped" ? all.placed : all;
      checkPolicy(capabilities, policy);
      return [store, policy];
    } catch {
      return undefined;
    }
  }

  /** The place of a rule's store. */
  place({ store }: Pick<Rule, "store">): number {
    return store === undefined ? 0 : this.stores.indexOf(store);
  }

  async #ask(asked: Ask, isOpen: boolean): Promise<StoreAnswer> {
    const { rule, store, check } = asked;
    const started = performance.now();
    // Others may have taken their time.
    timed(check);
    let said: StoreAnswer;
    try {
      said = { check, decision: await this.composed[store]!.layer.ask(check), isOpen: false, level: 0 };
    } catch (thrown) {
      const error = TidegateError.from(thrown);
      said = { check, error, isOpen: isOpen && isStoreFailure(error), level: 0 };
    }
    this.#events.decided(rule, said, started);
    if (said.decision && this.rules.thresholds) said.level = this.rules.thresholds.charged(asked, said.decision, check.cost, false, this.#events);
    return said;
  }

  /** Returns what was charged if it has a token. Otherwise, it stays charged. */
  async #return(asks: readonly Ask[]): Promise<void> {
    for (const { store, check } of asks) {
      const { policy, keys, now, token } = check;
      const settlement = { ...ask(SETTLE, policy, now), keys, token, cost: 0 };
      if (token !== undefined) await this.composed[store]!.layer.ask(settlement).catch(() => undefined);
    }
  }

  #refused({ name }: Rule, now: number, outcome: Outcome & ("listed" | "invalid_token" | "challenged"), status: number, body: object, fields = {}): VerdictParts {
    this.#events.refused(name, now, outcome);
    return { outcome, sent: response(status, body, fields) };
  }
}

/** What to tell of a request that the application is not set up to decide on. */
export function misconfigured({ asks }: Pending): VerdictParts {
  return { outcome: "failed_closed", rule: asks[0].rule, error: needsPeer("the platform"), sent: undecided("misconfigured", false, false) };
}

/** What to tell of a request that was not decided on. It passes only after a failure of the store. */
function failed(error: TidegateError, isOpen: boolean): VerdictParts {
  const { kind } = error;
  if (isOpen && isStoreFailure(error)) return { outcome: "failed_open", error, sent: undecided(kind, true, true) };
  return { outcome: "failed_closed", error, sent: unavailable(kind) };
}

function passes({ decision, isOpen }: StoreAnswer): boolean {
  return decision ? decision[STATUS] === ALLOWED : isOpen;
}

/** How many requests remain. */
function left({ decision }: StoreAnswer): number {
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
