import { ObjectRows } from "#object/rows";
import { DurableObject } from "cloudflare:workers";
import { TidegateError } from "../../error.js";
import type { ObjectCounter } from "../../glue.js";
import { Shared } from "../../shared.js";
import { engine } from "./engine.js";

const shared = new Shared(engine);

/** What remains after a sweep, as in `src/object.rs`. */
const [NOTHING, MORE] = [0, 2] as const;

/**
 * The Durable Object that counts. Export it from the Worker's main module, and declare it with SQLite storage:
 *
 *     export { TidegateObject } from "@tidegate/edge/cloudflare";
 *
 * It answers a limiter of the same version, also that of `tidegate-cloudflare` in Rust.
 */
export class TidegateObject extends DurableObject {
  /** Undefined until the first event: whether an alarm is pending can only be asked asynchronously. */
  #counter: ObjectCounter | undefined;

  /** Answers a call of a limiter in one step. The platform holds the answer until what it wrote is durable. */
  answer(question: string): string | Promise<string> {
    return this.#counter ? this.#answer(this.#counter, question) : this.#wake().then((counter) => this.#answer(counter, question));
  }

  /** Removes expired rows, a page at a time, and all storage if none are left, so that the object ceases to exist. */
  override async alarm(): Promise<void> {
    const counter = await this.#wake();
    for (;;) {
      const remains = this.#swept(counter);
      // In the same step as the sweep that found no row: no event comes between.
      if (remains === NOTHING) return this.ctx.storage.deleteAll();
      if (remains !== MORE) return;
      await new Promise((resolve) => setTimeout(resolve, 0));
    }
  }

  #answer(counter: ObjectCounter, question: string): string {
    try {
      return shared.text(counter.answer(shared.write(question), Date.now()));
    } catch (trap) {
      // What is stored is consistent, so a new counter can go on.
      this.#counter = undefined;
      throw trap;
    }
  }

  #swept(counter: ObjectCounter): number {
    try {
      return shared.took(counter.sweep(Date.now()));
    } catch (thrown) {
      throw TidegateError.from(thrown);
    }
  }

  async #wake(): Promise<ObjectCounter> {
    if (this.#counter) return this.#counter;
    const alarm = await this.ctx.storage.getAlarm();
    // Another event may have made it meanwhile.
    return (this.#counter ??= new engine.ObjectCounter(new ObjectRows(this.ctx.storage), alarm ?? undefined));
  }
}
