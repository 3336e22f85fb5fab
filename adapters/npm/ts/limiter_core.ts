import { type Capabilities, need, supports, supportsDimensions, supportsPolicy } from "./core/capabilities.js";
import { type Decision, NO_CHARGE } from "./core/decide.js";
import { digest, keyOf } from "./core/key.js";
import { type Dimension, type MakeRule, type Names, Policy, type ReadyPolicy } from "./core/policy.js";
import { checkQuestion } from "./core/valid_question.js";
import { type Question, REFUND } from "./question.js";

/** A limiter's policy, its keys, and what its decisions mean, if its store supports everything. */
export class ExactCore {
  declare readonly policy: Policy;
  /** Only gates and `Tidegate` ask for them: a `RateLimiter` leaves them out. */
  declare readonly capabilities: Capabilities;
  /** The names of the policy's dimensions, in the order of a question's keys. */
  declare readonly dimensions: readonly string[];
  /** The last decision. A store leaves it here. */
  decision: Decision = [];

  constructor(policy: Policy, capabilities?: Capabilities) {
    this.policy = policy;
    this.capabilities = capabilities!;
    this.dimensions = this.policy.dimensions.map(({ name }) => name);
  }
}

/** The id of a question's charge, which its slots have. */
export function chargeIdOf({ policy, token }: Question): string {
  return token !== undefined && policy.holdsSlots ? digest(token).slice(0, 16) : NO_CHARGE;
}

/** The same for a store elsewhere, and where it keeps states. It can all but refund what is lent. */
export class StoreCore extends ExactCore {
  /** Throws what is wrong with the options. */
  constructor(options: ReadyPolicy, capabilities: Capabilities | undefined, makeRule: MakeRule) {
    super(new Policy(options, makeRule), capabilities);
  }

  /** Throws if the store cannot answer a question. */
  verify(question: Question): void {
    if (question.kind === REFUND) need(this.capabilities.refund, "refund");
    checkQuestion(this.policy, question);
  }

  /** Where the states of a question's keys are. */
  storage({ key, others, policy }: Question): Names {
    const { dimensions, group, placeByKey, balance } = policy;
    const keys = [...others, key].map((text) => keyOf(text, policy.isOfGate));
    if (balance) return balance.storage(policy, keys);
    const [first] = dimensions as [Dimension];
    if (placeByKey) {
      const place = `tg1:@${first.name}:${keys[0]}`;
      return { place, rows: dimensions.map(({ id }) => `${place}|${id}`) };
    }
    const own = dimensions.map(({ id }, nth) => `tg1:${id}:${keys[nth]}`);
    if (dimensions.length === 1) return { place: own[0], rows: own };
    if (!group) return { place: undefined, rows: own };
    const place = own[dimensions.indexOf(group)]!;
    return { place, rows: dimensions.map((dimension, nth) => (dimension === group ? place : `${place}|${dimension.id}:${keys[nth]}`)) };
  }
}

/** The same for a store that keeps each policy in one place. */
export class PlaceCore extends StoreCore {
  constructor(options: ReadyPolicy, capabilities: Capabilities, makeRule: MakeRule) {
    super(options, capabilities, makeRule);
    supportsDimensions(capabilities, this.policy);
  }
}

/** The same for a store that may lack anything. */
export class Core extends StoreCore {
  constructor(options: ReadyPolicy, capabilities: Capabilities, makeRule: MakeRule) {
    super(options, capabilities, makeRule);
    supportsPolicy(capabilities, this.policy);
  }

  override verify(question: Question): void {
    supports(this.capabilities, this.policy, question);
  }
}
