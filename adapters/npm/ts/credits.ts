import { BALANCES } from "./balances.js";
import { BALANCE } from "./core/algorithms/balance.js";
import { MAX_UNITS } from "./core/arithmetic.js";
import { Fields } from "./fields.js";
import { type LoadedQuota, READY } from "./loaded_policy.js";

export type { GrantOptions } from "./granting.js";
export type { LoadedQuota } from "./loaded_policy.js";

/** A balance: see `balance`. */
export interface BalanceOptions {
  /** The most units that it can hold. Default: 2^51. */
  max?: number | undefined;
  /** Whether it pays only what the quota right before it does not admit: a fixed window, a token bucket or a calendar window of the same dimension. Default: false. */
  covers?: boolean | undefined;
  /** What response fields show. */
  name?: string | undefined;
  /** The dimension by whose key the quota counts. Default: the request's sender. */
  by?: string | undefined;
}

/**
 * A quota that holds what a limiter's `grant` gives it, until it is spent:
 *
 *     import { balance } from "@tidegate/edge/credits";
 *
 *     const included = { fixedWindow: { limit: 1_000, windowMs: 86_400_000 } };
 *     const tidegate = new Tidegate({ …, policy: { name: "api", quotas: [included, balance({ covers: true })] } });
 *     await tidegate.grant("user:42", order.units, { token: order.id });
 */
export function balance(options: BalanceOptions = {}): LoadedQuota<"balance"> {
  const fields = new Fields(options, "", ["max", "covers", "name", "by"]);
  const ready = { algorithm: BALANCE, place: "", amount: fields.whole("max") ?? MAX_UNITS, span: 0, refill: Number(fields.flag("covers") ?? false), name: undefined, by: undefined, part: BALANCES };
  BALANCES.rule(ready, "");
  return { [READY]: ready, name: options.name, by: options.by };
}
