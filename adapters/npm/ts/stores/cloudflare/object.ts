import { DurableObject } from "cloudflare:workers";
import { MAX_INSTANT } from "../../core/arithmetic.js";
import type { Part } from "../../core/policy.js";
import { TidegateError } from "../../error.js";
import { Counter, MORE, NOTHING } from "./counter.js";
import { Rows, type Storage } from "./rows.js";

/**
 * The Durable Object that counts. Export it from the Worker's main module, and declare it with SQLite storage:
 *
 *     export { TidegateObject } from "@tidegate/edge/cloudflare";
 *
 * It answers a limiter of the same version, also that of `tidegate-cloudflare` in Rust.
 */
export class TidegateObject extends DurableObject {
  /** Undefined until the first event: whether an alarm is pending can only be asked asynchronously. */
  #counter: Counter | undefined;

  /** @internal How quotas become balances: those of `@tidegate/edge/credits/cloudflare` know how. */
  protected get balances(): Part | undefined {
    return undefined;
  }

  /** Answers a call of a limiter in one step. The platform holds the answer until what it wrote is durable. */
  answer(question: string): string | Promise<string> {
    return this.#counter ? this.#counter.answer(question, clock()) : this.#wake().then((counter) => counter.answer(question, clock()));
  }

  /** Removes expired rows, a page at a time, and all storage if none are left, so that the object ceases to exist. */
  override async alarm(): Promise<void> {
    const counter = await this.#wake();
    for (;;) {
      const remains = swept(counter);
      // In the same step as the sweep that found no row: no event comes between.
      if (remains === NOTHING) return this.ctx.storage.deleteAll();
      if (remains !== MORE) return;
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  async #wake(): Promise<Counter> {
    if (this.#counter) return this.#counter;
    const alarm = await this.ctx.storage.getAlarm();
    // Another event may have made it meanwhile.
    return (this.#counter ??= new Counter(new Rows(this.ctx.storage as unknown as Storage), alarm ?? undefined, this.balances));
  }
}

function clock(): number {
  return Math.min(Date.now(), MAX_INSTANT);
}

function swept(counter: Counter): number {
  try {
    return counter.sweep(clock());
  } catch (thrown) {
    throw TidegateError.from(thrown);
  }
}
