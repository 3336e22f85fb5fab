import { optionsReader } from "./check_options.js";
import type { Decision } from "./core/decide.js";
import { type Look, sent } from "./core/response_look.js";
import { invalid, TidegateError } from "./error.js";
import { whole } from "./fields.js";
import type { Layer } from "./layer.js";
import type { Operation } from "./options.js";
import { ask, type Question, SETTLE, WHAT_WAS_CHARGED } from "./question.js";
import { type Held, outcomeOf, Verdict, type VerdictParts } from "./verdict.js";

/** How long a charge can be settled unless the application says otherwise: ten minutes. */
export const SETTLE_WITHIN_MS = 600_000;

/** The options of a settlement and a refund, and of what has no cost. */
export const readPart = /* @__PURE__ */ optionsReader({ cost: whole, now: whole });
export const readNow = /* @__PURE__ */ optionsReader({ now: whole });

/** What corrects charges: limiters and gates. */
export interface Settling {
  /**
   * Settles a request that was charged an estimate to what it cost, a whole number:
   *
   *     const verdict = await tidegate.check(request, { estimate: 2_000 });
   *     if (verdict.response) return verdict.response;
   *     const { answer, tokens } = await complete(request);
   *     await tidegate.settle(verdict, { cost: tokens });
   *
   * What it cost less is returned, less what time has replenished since. What it cost more is charged, also beyond the limit:
   * the key is then denied until time has repaid the debt. A cost of 0 cancels the charge. If a request is never settled, its
   * estimate stays charged.
   *
   * The first settlement or refund of a charge counts. A further one changes nothing, so it can be retried after an error.
   * Returns what a request of cost 0 would get now. Returns `verdict` itself if nothing was charged, because the request was
   * rejected or not limited, or the store failed. Throws a `TidegateError`: `unknown_charge` if it is too late.
   */
  settle(verdict: Verdict, actual: { cost: number; now?: number | undefined }): Promise<Verdict>;

  /**
   * Gives back the slots of a request that has ended, if a limit is a concurrency limit. What it was charged stays charged:
   *
   *     const verdict = await tidegate.check(request);
   *     if (verdict.response) return verdict.response;
   *     try {
   *       return verdict.onto(await app(request));
   *     } finally {
   *       await tidegate.release(verdict);
   *     }
   *
   * `settle` and `refund` give them back, too. A request that is never released holds its slots for their lifetime.
   * Otherwise it is like `settle`: it throws `unknown_charge` if the lifetime is over.
   */
  release(verdict: Verdict, options?: { now?: number | undefined }): Promise<Verdict>;

  /**
   * Refunds the part `cost` of what a request was charged, by default all of it. Does nothing if nothing was charged.
   *
   * A request that was charged under a token is settled to the rest, so it is refunded once, also if its verdict is `replayed`. If it was
   * charged by several rules of a gate, each is settled to the rest of what it has charged. The check of a gate needs an estimate or a
   * token. A limiter refunds also a check without: by default a cost of 1.
   */
  refund(verdict: Verdict, part?: { cost?: number | undefined; now?: number | undefined }): Promise<void>;
}

/** Where charges are made. */
export interface Charges {
  /** The layer that has charged at a place. */
  layerAt(store: number): Layer;
  /** Where a request was charged. */
  heldBy(verdict: Verdict): readonly Held[];
  /** How responses look. */
  readonly look: () => Look;
  /** Runs an operation, and reports its error before it throws it. */
  told<T>(operation: Operation, run: () => Promise<T>): Promise<T>;
}

/** How limiters and gates correct charges. */
export class Settlement implements Settling {
  readonly #charges: Charges;

  constructor(charges: Charges) {
    this.#charges = charges;
  }

  settle(verdict: Verdict, actual: { cost: number; now?: number | undefined }): Promise<Verdict> {
    return this.#settle("settle", verdict, () => {
      const { cost, now } = readPart(Object(actual));
      const settled = whole("cost", cost);
      return [now, () => settled];
    });
  }

  release(verdict: Verdict, options?: { now?: number | undefined }): Promise<Verdict> {
    return this.#settle("release", verdict, () => [readNow(options ?? {}).now, () => WHAT_WAS_CHARGED]);
  }

  async refund(verdict: Verdict, part: { cost?: number | undefined; now?: number | undefined } = {}): Promise<void> {
    await this.#settle("refund", verdict, () => {
      const { cost, now } = readPart(part);
      return [now, (charged) => (cost === undefined ? 0 : Math.max(charged - cost, 0))];
    });
  }

  /** Settles a charge wherever it was made. `read` reads the options: the time, and what each part of the charge becomes. */
  #settle(operation: "settle" | "release" | "refund", verdict: Verdict, read: () => [now: number | undefined, cost: (charged: number) => number]): Promise<Verdict> {
    return this.#charges.told(operation, async () => {
      const [now = Date.now(), cost] = read();
      const { outcome, failedOpen, charge, rule } = verdict;
      // A check that failed may have been charged or not.
      const mayBeCharged = outcome === "allowed" || (failedOpen && operation !== "refund" && charge);
      if (!mayBeCharged || (operation === "release" && !charge)) return verdict;
      if (!charge) throw invalid("verdict", "its check had no estimate and no token; write check(request, { estimate }), or estimate in the gate's rule");
      const held = this.#charges.heldBy(verdict);
      if (held.length === 0) return verdict;
      let decision: Decision | undefined;
      let failure: unknown;
      for (const one of held) {
        const { store, policy, keys, cost: charged } = one;
        try {
          const question = { ...ask(SETTLE, policy, now), keys, token: charge.token, cost: cost(charged) };
          const settled = await this.#charges.layerAt(store).ask(question);
          one.settled?.(settled, question, charged);
          decision ??= settled;
        } catch (thrown) {
          failure ??= thrown;
        }
      }
      if (failure !== undefined) {
        if (failedOpen && TidegateError.from(failure).kind === "unknown_charge") return verdict;
        throw failure;
      }
      const [{ policy }] = held as [Held];
      const told = standing({ policy, keys: verdict.key ?? verdict.keys }, decision!, this.#charges.look());
      return new Verdict({ ...told, names: held.length === 1 ? policy.names : undefined, rule, charge, held });
    });
  }
}

/** What is told of the counts of keys. */
export function standing({ policy, keys }: Pick<Question, "policy" | "keys">, decision: Decision, look: Look): VerdictParts {
  return { outcome: outcomeOf(decision), decision, names: policy.names, keys, sent: (decision) => sent(policy, decision, look) };
}
