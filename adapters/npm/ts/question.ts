import { MAX_INSTANT } from "./core/exact.js";
import type { Keys } from "./verdict.js";

/** The kinds of questions, by their numbers in `src/limit.rs`. From `SETTLE` on, they give back what may have denied a check. */
export const [CHECK, PEEK, SETTLE, REFUND, BLOCK, RESET] = [0, 1, 2, 3, 4, 5] as const;

/** What a limiter asks its store. All questions have the same fields, which V8 reads faster. */
export interface Question {
  kind: 0 | 1 | 2 | 3 | 4 | 5;
  /** What the request counts against, as the verdict shows it. */
  counted: string | Keys | undefined;
  /** The key of the policy's last dimension, and those of the others in order. */
  key: string;
  others: readonly string[];
  /** For a settlement the actual cost, or a negative number for what was charged. */
  cost: number;
  now: number;
  /** Whether the caller has given that time. Otherwise it is read when the keys are known, right before the question is asked. */
  isTimed: boolean;
  token: string | undefined;
  /** How long a check's token is remembered, when a refund's cost was charged, or how long to block. */
  extra: number;
  /** What the store notes of the call that is on its way. */
  note: number;
  noted: unknown;
  /** How the store has sent it. */
  way: string;
  /** Whether it waits for the answer to another question, or for the first connection. */
  waits: boolean;
  /** How many denials the deny cache had forgotten when this was asked. */
  forgotten: number;
}

const NO_OTHERS: readonly string[] = [];

/** A clock's time, or the last instant if that is earlier. */
export function clamped(now: number): number {
  return Math.min(now, MAX_INSTANT);
}

/** Reads the time of a question, unless the caller has given it. */
export function timed(question: Question): void {
  if (!question.isTimed) question.now = clamped(Date.now());
}

/** A question of cost 1 without a token. */
export function ask(kind: Question["kind"], now: number): Question {
  return { kind, counted: undefined, key: "", others: NO_OTHERS, cost: 1, now: clamped(now), isTimed: true, token: undefined, extra: 0, note: 0, noted: undefined, way: "", waits: false, forgotten: 0 };
}
