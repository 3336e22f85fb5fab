import { later } from "../../core/arithmetic.js";
import { nameOf } from "../../deny_cache.js";
import type { Question } from "../../question.js";

/** The most charges that are remembered, usually in less than 16 MB. The store is asked about all others. */
const MOST = 2 ** 16;

/** The charges about which the store was not asked, each until the backup has forgotten it. */
export class BackupCharges {
  readonly #until = new Map<string, number>();

  /** Remembers a charge of the backup. */
  add(check: Question): void {
    const { policy, token, extra, now } = check;
    if (token === undefined) return;
    const until = this.#until;
    if (until.size >= MOST) for (const [charge, end] of until) if (end <= now) until.delete(charge);
    if (until.size < MOST) until.set(chargeOf(check), later(now, Math.max(extra, policy.longestSlot)));
  }

  /** Forgets a charge about which the store is asked. */
  forget(check: Question): void {
    if (check.token !== undefined && this.#until.size > 0) this.#until.delete(chargeOf(check));
  }

  /** Whether only the backup has the charge. */
  has(settlement: Question): boolean {
    return this.#until.size > 0 && (this.#until.get(chargeOf(settlement)) ?? 0) > settlement.now;
  }
}

function chargeOf(question: Question): string {
  return `${nameOf(question)} ${question.token}`;
}
