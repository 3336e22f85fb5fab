import { invalid } from "../error.js";
import { BLOCK, CHECK, type Question, SETTLE } from "../question.js";
import { MAX_UNITS } from "./arithmetic.js";
import type { Balance, Policy } from "./policy.js";

/** Throws if no store can answer a question. */
export function checkQuestion(policy: Policy, question: Question): void {
  checkNumbers(question);
  checkFor(policy, question);
}

/** Throws if a token or a cost cannot be one. */
export function checkNumbers({ kind, cost, token }: Question): void {
  // Such a token would be that of many requests.
  if (token?.trim() === "") throw invalid("idempotency", "the token is empty; give one that is unique to the request, or none");
  if (kind === SETTLE && cost > MAX_UNITS) throw invalid("cost", `${cost} is out of range; write a whole number from 0 to ${MAX_UNITS}`);
}

/** The balance of a policy. Throws if it has none. */
export function balanceOf({ name, balance }: Policy): Balance {
  if (balance) return balance;
  throw invalid("grant", `the policy "${name}" has no balance; add a quota of this kind`);
}

/** Throws if a policy has no answer to a question. */
export function checkFor({ name, hasBlocks, holdsSlots, balance }: Policy, question: Question): void {
  const { kind, token } = question;
  balance?.checks(question);
  if (kind === BLOCK && !hasBlocks) {
    throw invalid("block", `the policy "${name}" has no quota that blocks; add a \`block\`, or a \`penalty\` if violations are to block, too`);
  }
  if (kind === CHECK && token === undefined && holdsSlots) {
    throw invalid("idempotency", "a policy with a concurrency limit needs a token, which names the slot; give one");
  }
}
