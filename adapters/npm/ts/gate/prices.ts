import { invalid } from "../error.js";
import { shown } from "../fields.js";
import type { BaseGate } from "./gate.js";
import type { FileValue } from "./rules/file_value.js";
import { type PricesOf, pricesOf } from "./rules/prices.js";
import { quoted } from "./rules/quoted_text.js";
import { suggestion } from "./rules/suggestion.js";

/** How many of each of a model's units a request took, as `{ input: 120, output: 40 }`. */
export type Counts = Readonly<Record<string, number | undefined>>;

/**
 * The table `prices` of a gate's rules: what one unit of each count costs, by the names of models and counts.
 *
 *     const prices = new Prices(gate);
 *     const verdict = await gate.check(request, { estimate: prices.cost("gpt-large", { input: 1_000, output: 2_000 }) });
 *     // After the answer, by what it says that it took:
 *     await gate.settle(verdict, { cost: prices.cost("gpt-large", { input: usage.input, output: usage.output }) });
 */
export class Prices {
  readonly #gate: BaseGate;
  #read: FileValue | undefined;
  #prices: PricesOf;

  /** Throws what is wrong with the table, with its position. */
  constructor(gate: BaseGate) {
    this.#gate = gate;
    this.#read = gate.prices as FileValue | undefined;
    this.#prices = pricesOf(this.#read);
  }

  /** The sum of each count, times its price. Throws for a model or a count that has none, with the nearest name, and for a sum of 2^53 or more. A count that is undefined is left out. */
  cost(model: string, counts: Counts): number {
    const prices = this.#gate.prices as FileValue | undefined;
    if (prices !== this.#read) [this.#read, this.#prices] = [prices, pricesOf(prices)];
    const of = this.#prices.get(model);
    if (!of) throw invalid("prices", this.#prices.size > 0 ? `${quoted(model)} has none; ${suggestion(model, [...this.#prices.keys()])}` : "the rules have none; write a table such as [prices.gpt] with input = 3");
    let sum = 0;
    for (const [name, count] of Object.entries(counts)) {
      if (count === undefined) continue;
      const price = of.get(name);
      if (price === undefined) throw invalid("prices", `${quoted(name)} is not counted of ${quoted(model)}; ${suggestion(name, [...of.keys()])}`);
      if (!Number.isSafeInteger(count) || count < 0) throw invalid(`counts.${name}`, `${shown(count)} is no whole number from 0; write one`);
      sum += count * price;
      // A product or a sum that is larger than all safe numbers is not rounded to one of them.
      if (!Number.isSafeInteger(sum)) throw invalid("prices", `${count} of ${quoted(name)} are too many; a request costs at most ${Number.MAX_SAFE_INTEGER}`);
    }
    return sum;
  }
}
