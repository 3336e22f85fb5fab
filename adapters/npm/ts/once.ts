import { digest } from "./core/key.js";
import { TidegateError } from "./error.js";
import { Fields } from "./fields.js";
import type { Limiter } from "./limiter.js";
import type { Policy } from "./policy.js";

export { type ErrorKind, TidegateError } from "./error.js";

/** The options of the limiter that remembers tokens. Spread them, as in `new Tidegate({ url, token, ...limit })`. */
export interface OnceLimit {
  policy: Policy;
  platform: "direct";
  failMode: "closed";
}

/** The options of `once`. */
export interface OnceOptions {
  /** What the tokens are of, such as `stripe-webhooks`: 1 to 32 of the characters a-z A-Z 0-9 - _ . Tokens of another name are others. */
  name: string;
  /** How long a token is remembered, in milliseconds. */
  ttlMs: number;
}

/**
 * A function that is true for the first use of each token within `ttlMs`, and false for all others, also if many ask at once:
 *
 *     const isFirst = once((limit) => new Tidegate({ url, token, ...limit }), { name: "stripe-webhooks", ttlMs: 86_400_000 });
 *     if (!(await isFirst(event.id))) return new Response("already processed");
 *
 * It needs an exact store, and keeps a hash of each token. It rejects with a `TidegateError` if the store does not answer, and is never
 * true then: nobody knows whether the token is used. Throws for wrong options, and `unsupported` for a limiter that is not exact.
 */
export function once(store: (limit: OnceLimit) => Limiter, options: OnceOptions): (token: string, at?: { now?: number | undefined }) => Promise<boolean> {
  const fields = new Fields(options, "", ["name", "ttlMs"]);
  const name = fields.need("name", fields.text("name", "a name"), `"webhooks"`);
  const ttlMs = fields.need("ttlMs", fields.whole("ttlMs"), "86_400_000 for a day");
  if (ttlMs === 0) throw new TidegateError("invalid", "once: a ttl of 0 ms remembers nothing; write at least 1 ms");
  // Not a window: two that follow one another would admit twice within the time of one.
  const policy = { name, quotas: [{ tokenBucket: { capacity: 1, refill: 1, perMs: ttlMs } }] };
  const limiter = store({ policy, platform: "direct", failMode: "closed" });
  const { accuracy } = limiter.capabilities;
  if (limiter.capabilities.class !== "exact") {
    throw new TidegateError("unsupported", `once: only an exact limiter can tell the first use of a token, and this one is ${accuracy}`);
  }
  return async (token, at = {}) => {
    if (typeof token !== "string") throw new TidegateError("invalid", "once: the token is no text");
    if (token === "") throw new TidegateError("invalid", "once: the token is empty; give what names the event, such as its id");
    // The whole hash: whoever chooses tokens may look for two with one key.
    const { error, outcome } = await limiter.limit(`once:${digest(token)}`, at);
    if (error) throw error;
    return outcome === "allowed";
  };
}
