import type { Question } from "../../question.js";
import type { Keys } from "../../verdict.js";
import type { Policy } from "../../core/policy.js";

/** The same question by another policy, which counts by some of its keys. */
export function askedBy(policy: Policy, question: Question): Question {
  const keys = question.keys as Keys;
  return { ...question, policy, keys: Object.fromEntries(policy.dimensions.map(({ name }) => [name, keys[name]!])), lease: undefined };
}
