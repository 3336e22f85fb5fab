import type { Store } from "./calls.js";
import type { Core } from "./core.js";
import type { Decision } from "./core/decide.js";
import { AT, DENIED, EACH, FROM_DENY_CACHE, ORIGIN, QUOTAS, STATUS, UNKNOWN, WAIT } from "./numbers.js";
import { CHECK, type Question, SETTLE } from "./question.js";

/** A denial, with the times between which it holds. */
interface Denial {
  cost: number;
  from: number;
  until: number;
  decision: Decision;
}

/**
 * Denies a key that was denied before without asking the store, until its wait is over. It does what core's `DenyCache` does, to which
 * `test/deny-cache.test.mjs` holds it.
 */
export class DenyCache implements Store {
  readonly name: string;
  readonly #store: Store;
  readonly #core: Core;
  readonly #holdMs: number;
  readonly #capacity: number;
  readonly #denials = new Map<string, Denial>();
  #forgotten = 0;

  constructor(store: Store, core: Core, { holdMs, capacity }: { holdMs: number; capacity: number }) {
    this.name = store.name;
    this.#store = store;
    this.#core = core;
    this.#holdMs = holdMs;
    this.#capacity = capacity;
  }

  send(question: Question, signal: AbortSignal | undefined, inFlight: number): Promise<unknown> | undefined {
    if (question.kind === CHECK && this.#recall(question)) return undefined;
    question.forgotten = this.#forgotten;
    return this.#after(question, () => this.#store.send(question, signal, inFlight));
  }

  answered(question: Question, answer: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#after(question, () => this.#store.answered(question, answer, signal));
  }

  threw(question: Question, thrown: unknown, signal: AbortSignal | undefined): Promise<unknown> | undefined {
    return this.#after(question, () => this.#store.threw(question, thrown, signal));
  }

  late(question: Question): boolean {
    if (question.kind >= SETTLE) this.#forget(question);
    return this.#store.late?.(question) ?? false;
  }

  /** Remembers a denial, and forgets those that may not hold any more: also if the call has failed, as it may have been applied. */
  #after(question: Question, step: () => Promise<unknown> | undefined): Promise<unknown> | undefined {
    let sent: Promise<unknown> | undefined;
    let isOver = true;
    try {
      sent = step();
      isOver = sent === undefined;
    } finally {
      if (isOver && question.kind >= SETTLE) this.#forget(question);
    }
    if (isOver && question.kind === CHECK) this.#remember(question);
    return sent;
  }

  #recall({ token, cost, now, ...keys }: Question): boolean {
    const name = nameOf(keys);
    const denial = this.#denials.get(name);
    if (denial === undefined) return false;
    // If the clock steps back, it does not hold again: the store uses the later time.
    if (now >= denial.until) return !this.#denials.delete(name);
    if (token !== undefined || denial.cost !== cost || denial.from > now) return false;
    const elapsed = now - denial.from;
    const recalled = [...denial.decision];
    recalled[WAIT] = Math.max(recalled[WAIT]! - elapsed, 0);
    recalled[AT]! += elapsed;
    recalled[ORIGIN] = FROM_DENY_CACHE;
    // The counts have changed since, and are not known.
    for (let at = QUOTAS; at < recalled.length; at += EACH) recalled.fill(UNKNOWN, at + 1, at + EACH);
    this.#core.decision = recalled;
    return true;
  }

  #remember({ token, cost, now, forgotten, ...keys }: Question): void {
    const { decision } = this.#core;
    const wait = decision[WAIT]!;
    // An answer that was on its way while others were forgotten may be older than what has changed them.
    if (decision[STATUS] !== DENIED || wait === UNKNOWN || token !== undefined || forgotten !== this.#forgotten) return;
    const [denials, name] = [this.#denials, nameOf(keys)];
    if (denials.size >= this.#capacity && !denials.has(name)) {
      for (const [name, { until }] of denials) if (now >= until) denials.delete(name);
      if (denials.size >= this.#capacity) denials.clear();
    }
    denials.set(name, { cost, from: now, until: now + Math.min(wait, this.#holdMs), decision });
  }

  #forget(keys: Question): void {
    this.#forgotten += 1;
    // Others may share one of several keys, and be denied by it.
    if (keys.others.length > 0) this.#denials.clear();
    else this.#denials.delete(nameOf(keys));
  }
}

function nameOf({ key, others }: Pick<Question, "key" | "others">): string {
  return others.length > 0 ? JSON.stringify([...others, key]) : key;
}
