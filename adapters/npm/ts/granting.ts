import { MAX_INSTANT } from "./core/arithmetic.js";
import type { Policy } from "./core/policy.js";
import { invalid } from "./error.js";
import { Fields, whole } from "./fields.js";

/** How long the token of a grant is remembered unless the application says otherwise: 90 days. */
const REMEMBERED_MS = 90 * 86_400_000;

/** The options of a grant. */
export interface GrantOptions {
  /** A text that is unique to the grant, such as the id of an order. Grants with the same token are made once. */
  token: string;
  /** When the units expire: a date, or milliseconds since the epoch. Default: they do not. */
  expires?: Date | number | undefined;
  /** How long the token is remembered, in milliseconds. A grant that is repeated later grants again. Default: 90 days. */
  rememberMs?: number | undefined;
  /** The time of the grant, if the caller's clock decides. Default: `Date.now()`. */
  now?: number | undefined;
}

/** Makes a question that of a grant: see `Limiter.grant`. Throws what is wrong with it. */
export function ask<Asked extends { readonly policy: Policy; readonly now: number }>(question: Asked, units: unknown, options: unknown): Asked {
  const fields = new Fields(options, "", ["token", "expires", "rememberMs", "now"]);
  const right = 'a text that is unique to the grant, such as "order-1817"';
  const token = fields.need("token", fields.text("token", right), right);
  if (token.trim() === "") throw invalid("token", `empty; write ${right}`);
  const cost = whole("units", units);
  const until = fields.get("expires");
  const expires = Math.min(until === undefined ? MAX_INSTANT : whole("expires", until instanceof Date ? until.getTime() : until), MAX_INSTANT);
  const now = fields.whole("now") ?? question.now;
  return { ...question, policy: ofBalance(question.policy), cost, token, extra: fields.whole("rememberMs") ?? REMEMBERED_MS, expires, now };
}

/** The policy of the balance's dimension alone, which has the same stored states. */
function ofBalance(policy: Policy): Policy {
  const { dimensions, group, quotas, balance } = policy;
  const place = quotas.findIndex(({ rule }) => rule === balance);
  const dimension = dimensions.find(({ end }) => place < end)!;
  // Where the balance is stored depends on the key of a group.
  if (dimensions.length === 1 || (group && group !== dimension)) return policy;
  const [first, count] = [dimension.first, dimension.end - dimension.first];
  const own = quotas.slice(first, dimension.end);
  const dimensionsOfOwn = [{ ...dimension, first: 0, end: count }];
  const changed = {
    // What is kept by them is of the whole policy.
    ...{ parts: { ...policy.parts }, text: `${policy.text} of "${dimension.name}"` },
    ...{ quotas: own, names: own.map(({ name }) => name), group: undefined },
    ...{ dimensions: dimensionsOfOwn, rows: balance!.rows({ dimensions: dimensionsOfOwn, quotas: own }) },
    ...{ holdsSlots: own.some(({ rule }) => rule.code === "cc"), uncounted: policy.uncounted.slice(3 * first, 3 * dimension.end) },
  };
  return Object.assign(Object.create(Object.getPrototypeOf(policy) as object) as Policy, policy, changed);
}
