import { later } from "../../core/arithmetic.js";
import type { Lot } from "../../core/algorithms/algorithm.js";
import type { Charge, Decision } from "../../core/decide.js";
import { digest } from "../../core/key.js";
import { AT } from "../../decision_numbers.js";
import type { Question } from "../../question.js";

/** The most answers that are remembered. */
const ANSWERS_MAX = 1_000_000;

/** How many are looked at if there is no room. */
const VISIT_FULL = 256;

/** How many each check looks at. */
const VISIT = 8;

/** The longest token that is kept as it is. */
const TOKEN_LEN_MAX = 64;

/** The first answer to a token. */
interface Answer {
  until: number;
  decision: Decision;
  cost: number;
  paid: readonly Lot[] | undefined;
}

/** The first answers to checks with a token: those whose charge can be settled, and those whose charge is. */
export class Answers {
  readonly #open = new Map<string, Answer>();
  readonly #settled = new Map<string, Answer>();
  #left: MapIterator<[string, Answer]> | undefined;

  /** The answer to a check whose token has one. Throws if it was of another cost. */
  recall(name: string, { now, cost }: Question): Decision | undefined {
    this.#visit(now, VISIT);
    const first = this.#find(name, now);
    if (!first) return undefined;
    if (first.cost !== cost) throw ["token_reused", "this idempotency token belongs to a charge of another cost; use one token for each request"];
    return [...first.decision];
  }

  /** Whether a further answer can be remembered, in place of one that is settled if need be. */
  hasRoom(now: number): boolean {
    if (this.#size < ANSWERS_MAX) return true;
    this.#visit(now, VISIT_FULL);
    return this.#size < ANSWERS_MAX || this.#settled.size > 0;
  }

  remember(name: string, { now, cost }: Question, ttl: number, decision: Decision, paid?: readonly Lot[]): void {
    if (!this.hasRoom(now)) return;
    this.#settled.delete(name);
    if (this.#size >= ANSWERS_MAX) for (const oldest of this.#settled.keys()) if (this.#settled.delete(oldest)) break;
    this.#open.set(name, { until: later(now, ttl), decision, cost, paid });
  }

  /** The charge to settle. Undefined if it is settled. */
  take(name: string, { now }: Question, id: string): Charge | undefined {
    const answer = this.#find(name, now);
    if (!answer) {
      throw ["unknown_charge", "no charge is remembered under this policy, key and token; settle within the token's time to live"];
    }
    if (!this.#open.delete(name)) return undefined;
    this.#settled.set(name, answer);
    return { id, at: answer.decision[AT]!, cost: answer.cost, paid: answer.paid };
  }

  get #size(): number {
    return this.#open.size + this.#settled.size;
  }

  #find(name: string, now: number): Answer | undefined {
    const answer = this.#open.get(name) ?? this.#settled.get(name);
    return answer && answer.until > now ? answer : undefined;
  }

  /** Removes some of those that have expired. */
  #visit(now: number, count: number): void {
    for (let nth = 0; nth < count; nth++) {
      this.#left ??= this.#open.entries();
      const next = this.#left.next();
      if (next.done) {
        this.#left = undefined;
        break;
      }
      if (next.value[1].until <= now) this.#open.delete(next.value[0]);
    }
    for (const [name, { until }] of this.#settled) {
      if (until > now || --count < 0) break;
      this.#settled.delete(name);
    }
  }
}

/** The name of a token's answer. Its length has a bound. */
export function nameOf(keys: readonly string[], token: string): string {
  return JSON.stringify([...keys, token.length > TOKEN_LEN_MAX ? digest(token) : token]);
}
