import type { Capabilities } from "./core/capabilities.js";
import type { Decision } from "./core/decide.js";
import { AT, DENIED, EACH, FROM_DENY_CACHE, FROM_FALLBACK, ORIGIN, QUOTAS, STATUS, UNKNOWN, WAIT } from "./decision_numbers.js";
import type { Layer } from "./layer.js";
import { CHECK, GRANT, type Question, SETTLE, timed } from "./question.js";

/** How long a denial is remembered at most, and how many are. */
export interface Bounds {
  readonly holdMs: number;
  readonly capacity: number;
}

/** A denial, with the times between which it holds. */
interface Denial {
  readonly policy: string;
  readonly cost: number;
  readonly from: number;
  readonly until: number;
  readonly decision: Decision;
}

/**
 * Denies a key that was denied before without asking what it is around, until its wait is over. It does what core's `DenyCache` does, to
 * which `test/core-gate-around.test.mjs` holds it.
 */
export class DenyCache implements Layer {
  readonly #layer: Layer;
  readonly #bounds: Bounds;
  readonly #denials = new Map<string, Denial>();
  /** How often denials were forgotten. */
  #forgotten = 0;

  constructor(layer: Layer, bounds: Bounds) {
    this.#layer = layer;
    this.#bounds = bounds;
  }

  get capabilities(): Capabilities {
    return this.#layer.capabilities;
  }

  known(question: Question): Decision | undefined {
    return this.#recall(question) ?? this.#layer.known?.(question);
  }

  async ask(question: Question): Promise<Decision> {
    const recalled = this.#recall(question);
    if (recalled) return recalled;
    const forgotten = this.#forgotten;
    const { cost, now } = question;
    try {
      const decision = await this.#layer.ask(question);
      // An answer that was on its way while others were forgotten may be older than what has changed them.
      if (forgotten === this.#forgotten && holds(question)) this.#remember(question, cost, now, decision);
      return decision;
    } finally {
      // Also if the call has failed, as it may have been applied.
      if (question.kind >= SETTLE) this.#forget(question);
    }
  }

  /** What remains of the denial of an equal request. Undefined if none holds. */
  #recall(question: Question): Decision | undefined {
    if (question.kind !== CHECK) return undefined;
    timed(question);
    const { policy, cost, now } = question;
    const name = nameOf(question);
    const denial = this.#denials.get(name);
    if (!denial) return undefined;
    // If the clock steps back, it does not hold again: the store uses the later time.
    if (now >= denial.until) this.#denials.delete(name);
    if (now >= denial.until || denial.from > now || denial.cost !== cost || denial.policy !== policy.text || !holds(question)) return undefined;
    const elapsed = now - denial.from;
    const recalled = [...denial.decision];
    recalled[WAIT] = Math.max(recalled[WAIT]! - elapsed, 0);
    recalled[AT]! += elapsed;
    recalled[ORIGIN] = FROM_DENY_CACHE;
    // The counts have changed since, and are not known.
    for (let at = QUOTAS; at < recalled.length; at += EACH) recalled.fill(UNKNOWN, at + 1, at + EACH);
    return recalled;
  }

  /** Remembers a decision if it is a denial that ends. */
  #remember(question: Question, cost: number, now: number, decision: Decision): void {
    const wait = decision[WAIT]!;
    // What replaces a store that is down does not know what the store would say.
    if (decision[STATUS] !== DENIED || wait === UNKNOWN || decision[ORIGIN] === FROM_FALLBACK) return;
    const [denials, name, { holdMs, capacity }] = [this.#denials, nameOf(question), this.#bounds];
    if (denials.size >= capacity && !denials.has(name)) {
      for (const [name, { until }] of denials) if (now >= until) denials.delete(name);
      if (denials.size >= capacity) denials.clear();
    }
    denials.set(name, { policy: question.policy.text, cost, from: now, until: now + Math.min(wait, holdMs), decision });
  }

  /** Forgets the denials that may not hold any more: of several keys all, because others may share one of them, and be denied by it. */
  #forget(question: Question): void {
    this.#forgotten += 1;
    if (question.kind === GRANT || question.policy.dimensions.length > 1) this.#denials.clear();
    else this.#denials.delete(nameOf(question));
  }
}

/** Whether a denial of a check holds for its repetition. One with a token may have been admitted before, and one that is charged changes what is denied. */
function holds({ kind, token, policy }: Question): boolean {
  return kind === CHECK && token === undefined && !policy.chargeDenied;
}

/** The name of what a policy counts by a question's keys. */
export function nameOf({ policy: { id, dimensions }, keys }: Question): string {
  const all = typeof keys === "object" ? dimensions.map(({ name }) => keys[name]) : [keys];
  return all.length === 1 ? `${id} ${all[0]}` : JSON.stringify([id, ...all]);
}
