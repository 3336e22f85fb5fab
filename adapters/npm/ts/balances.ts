import { balances } from "./core/algorithms/balance.js";
import { ask } from "./granting.js";
import { once } from "./stores/memory/grants.js";
import { addScript, adjust, refused } from "./stores/redis/balance_scripts.js";

/** How quotas become balances, by which all stores of balances can count. */
export const BALANCES = balances({ addScript, adjust, refused, once, ask });
