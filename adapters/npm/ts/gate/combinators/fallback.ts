import type { Capabilities } from "../../core/capabilities.js";
import type { Decision } from "../../core/decide.js";
import type { Policy } from "../../core/policy.js";
import { ALLOWED, DENIED, FROM_FALLBACK, FROM_LEASE, NEVER_ADMISSIBLE, ORIGIN, REPLAY, STATUS, WAIT } from "../../decision_numbers.js";
import { isStoreFailure, kindOf, TidegateError } from "../../error.js";
import type { Layer } from "../../layer.js";
import { CHECK, GRANT, PEEK, type Question, SETTLE } from "../../question.js";
import { type RulesPolicy, share } from "../rules_policy.js";
import { BackupCharges } from "./backup_charges.js";
import { Breaker } from "./breaker.js";
import { checkPolicy } from "./store_support.js";

/** What a limiter admits that admits at most the limit at each location. */
const WITHIN_LIMIT = ["limit", "limit x locations"];

/** That a store has not answered. If it was spared, it was not asked. Otherwise nobody knows what it has done. */
class Silence {
  constructor(
    readonly error: unknown,
    readonly isSpared: boolean,
  ) {}
}

/**
 * Decides in place of a store that does not answer, for a limited time. Another store then admits a percentage of each limit.
 *
 * A check that the store does not answer may have been charged there, and is then charged by the other, too. So a settlement goes
 * wherever a charge may have been made. It does what core's `Fallback` does, to which `test/core-gate-around.test.mjs` holds it.
 */
export class Fallback implements Layer {
  readonly #store: Layer;
  readonly #backup: Layer;
  readonly #percent: number;
  readonly #atMostMs: number;
  readonly #breaker = new Breaker();
  readonly #backupCharges = new BackupCharges();
  readonly #shares = new WeakMap<Policy, Policy | undefined>();
  /** Whether the backup may have charged anything. */
  #isUsed = false;

  /** Throws if the backup may admit more than the limit at each location, because no bound would hold. */
  constructor(store: Layer, backup: Layer, { percent, atMostMs }: { readonly percent: number; readonly atMostMs: number }) {
    const can = backup.capabilities;
    if (!WITHIN_LIMIT.includes(can.ceiling)) {
      throw TidegateError.from(["unsupported", `backup: its accuracy is "${can.accuracy}"; use one of at most the limit x locations`]);
    }
    this.#store = store;
    this.#backup = backup;
    this.#percent = percent;
    this.#atMostMs = atMostMs;
  }

  get capabilities(): Capabilities {
    return this.#store.capabilities;
  }

  ask(question: Question): Promise<Decision> {
    return question.kind === SETTLE ? this.#settle(question) : this.#check(question);
  }

  async #check(check: Question): Promise<Decision> {
    const answer = await this.#askStore(check);
    if (!(answer instanceof Silence)) return answer;
    // What was not asked may still have loans.
    return (answer.isSpared && this.#store.known?.(check)) || this.#replace(check, answer);
  }

  async #settle(settlement: Question): Promise<Decision> {
    const here = await this.#settleHere(settlement);
    try {
      const answer = await this.#askStore(settlement);
      if (!(answer instanceof Silence)) return answer;
      if (here && this.#backupCharges.has(settlement)) return here;
      throw answer.error;
    } catch (thrown) {
      if (here && kindOf(thrown) === "unknown_charge") return here;
      throw thrown;
    }
  }

  /** Asks the store, if the breaker lets it. */
  async #askStore(question: Question): Promise<Decision | Silence> {
    const [breaker, { now }] = [this.#breaker, question];
    if (!breaker.mayAsk(now)) {
      return new Silence(TidegateError.from(["unavailable", "the store has failed repeatedly, and is not asked at the moment"]), true);
    }
    try {
      if (question.kind === CHECK) this.#backupCharges.forget(question);
      const decision = await this.#store.ask(question);
      // A loan says nothing about the store, nor does a mistake in the question.
      if (decision[ORIGIN] !== FROM_LEASE) breaker.answered();
      return decision;
    } catch (thrown) {
      if (isStoreFailure(thrown)) {
        breaker.failed(now);
        return new Silence(thrown, false);
      }
      if (!["invalid", "unsupported"].includes(kindOf(thrown))) breaker.answered();
      throw thrown;
    }
  }

  /** Decides on a check or a peek in place of the store. */
  async #replace(check: Question, { error, isSpared }: Silence): Promise<Decision> {
    const { kind, policy, cost, now } = check;
    // Units that the backup grants would be nowhere once the store is back.
    const part = kind !== GRANT && this.#breaker.downFor(now) <= this.#atMostMs ? this.#share(policy) : undefined;
    if (!part) throw error;
    this.#isUsed = true;
    if (!supports(this.#backup.capabilities, part, check)) throw error;
    const decision = [...(await this.#backup.ask({ ...check, policy: part, lease: undefined }))];
    // A replay may be of a charge that the store has, too.
    if (isSpared && decision[STATUS] === ALLOWED && !decision[REPLAY]) this.#backupCharges.add(check);
    decision[ORIGIN] = FROM_FALLBACK;
    if (decision[STATUS] === NEVER_ADMISSIBLE && canHold(policy, cost)) {
      // Only the store can admit it, so it is denied until the store is asked again.
      decision[STATUS] = DENIED;
      decision[WAIT] = Math.max(this.#breaker.asksAfter(now), 1);
    }
    return decision;
  }

  /** Settles a charge of the backup. Undefined if it has none. */
  async #settleHere(settlement: Question): Promise<Decision | undefined> {
    const part = this.#isUsed ? this.#share(settlement.policy) : undefined;
    if (!part) return undefined;
    try {
      const decision = [...(await this.#backup.ask({ ...settlement, policy: part }))];
      decision[ORIGIN] = FROM_FALLBACK;
      return decision;
    } catch (thrown) {
      if (["unknown_charge", "unsupported"].includes(kindOf(thrown))) return undefined;
      throw thrown;
    }
  }

  /** The part of a policy that is admitted without the store, made once. */
  #share(policy: Policy): Policy | undefined {
    if (!this.#shares.has(policy)) this.#shares.set(policy, share(policy as RulesPolicy, this.#percent));
    return this.#shares.get(policy);
  }
}

/** Whether each limit is at least this cost. One request takes one slot, whatever it costs. */
function canHold({ quotas, balance }: Policy, cost: number): boolean {
  return quotas.every(({ rule }) => rule.code === "cc" || rule.code === "pn" || cost <= rule.limit + (balance?.adds(rule) ?? 0));
}

/** Whether a store can decide on a check. */
function supports(can: Capabilities, policy: Policy, { kind, cost, token }: Question): boolean {
  try {
    checkPolicy(can, policy);
  } catch {
    return false;
  }
  return (can.costs || cost === 1) && (can.idempotency || token === undefined) && (can.peek || kind !== PEEK);
}
