import type { Caller } from "./glue.js";
import type { Keys } from "./verdict.js";

/** What a limiter asks its store. All questions have the same fields, which V8 reads faster. */
export interface Question {
  /** `flush` has Workers KV write what is due. Its number is how long to wait until the next time, or -1. */
  kind: "check" | "peek" | "settle" | "refund" | "reset" | "block" | "flush";
  /** What the request counts against, as the verdict shows it. */
  counted: string | Keys | undefined;
  /** The key of the policy's last dimension, and those of the others in order. */
  key: string;
  others: readonly string[];
  /** For a settlement the actual cost, or a negative number for what was charged. */
  cost: number;
  now: number;
  token: string | undefined;
  /** How long a check's token is remembered, or how long a key is blocked. */
  ttlMs: number;
  /** For a refund. */
  chargedAt: number;
}

const NO_OTHERS: readonly string[] = [];

/** A question of cost 1 without a token. */
export function ask(kind: Question["kind"], now: number): Question {
  return { kind, counted: undefined, key: "", others: NO_OTHERS, cost: 1, now, token: undefined, ttlMs: 0, chargedAt: 0 };
}

/** Begins the call that asks a question. Returns whether it is done. */
export function begin(caller: Caller, { kind, key, others, cost, now, token, ttlMs, chargedAt }: Question): boolean {
  for (const other of others) caller.beside(other);
  switch (kind) {
    case "check":
    case "peek":
      return caller.check(key, cost, now, token, ttlMs, kind === "peek");
    case "settle":
      return caller.settle(key, token!, cost, now);
    case "refund":
      return caller.refund(key, cost, chargedAt, now);
    case "block":
      return caller.block(key, ttlMs, now);
    case "reset":
      return caller.reset(key);
    case "flush":
      return caller.flush(now);
  }
}
