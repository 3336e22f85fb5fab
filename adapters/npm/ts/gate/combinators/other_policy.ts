import type { Policy } from "../../core/policy.js";
import { invalid } from "../../error.js";
import type { Question } from "../../question.js";
import type { Keys } from "../../core/key.js";

/** The same question by another policy, which counts by some of its keys. Throws if it lacks one. */
export function askedBy(policy: Policy, question: Question): Question {
  const keys = question.keys as Keys;
  const own = policy.dimensions.map(({ name }) => {
    const key = keys[name];
    if (key === undefined) throw invalid(`keys.${name}`, "missing");
    return [name, key] as const;
  });
  return { ...question, policy, keys: Object.fromEntries(own), lease: undefined };
}
