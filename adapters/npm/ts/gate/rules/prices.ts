import { MAX_UNITS } from "../../core/arithmetic.js";
import type { FileValue } from "./file_value.js";

/** The price of each count, by its name, of each model. */
export type PricesOf = ReadonlyMap<string, ReadonlyMap<string, number>>;

/** Reads the table `prices` of a rules file. Throws what is wrong with it. */
export function pricesOf(table: FileValue | undefined): PricesOf {
  const models = table?.entries((model, item) => {
    const prices = item.entries((count, price) => [count, priceOf(item, count, price)] as const);
    if (prices.length === 0) throw item.invalid("empty; write one such as input = 3");
    return [model, new Map(prices)] as const;
  });
  return new Map(models);
}

function priceOf(model: FileValue, count: string, price: FileValue): number {
  const [written, whole, decimals] = /^(\d+)\.(\d*?)0*$/.exec(price.node.bare ?? "") ?? [];
  if (decimals === "") throw price.invalid(`${written} has a point; write ${whole}`);
  if (decimals && decimals.length <= 12) {
    const scale = `1${"0".repeat(decimals.length)}`;
    throw price.invalid(`${written} is a fraction; write prices in units of 1/${scale} and multiply the limits by ${scale}`);
  }
  return model.numberIn(count, 0, MAX_UNITS)!;
}
