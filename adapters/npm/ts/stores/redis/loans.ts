import { MAX_INSTANT } from "../../core/arithmetic.js";
import { unused, verify } from "../../core/decide.js";
import { canLend, Lender, type Lent } from "../../core/lending/lender.js";
import { ALLOWED, STATUS } from "../../decision_numbers.js";
import { lendScript } from "./built.js";
import { parse } from "./state.js";
import { disagreement, LENDING, type Loans, noAnswer, told } from "./wire.js";

/** What states with loans need: see `Loans`. */
export const LOANS: Loans = {
  addScript: (scripts) => (scripts[LENDING] ??= lendScript()),
  canLend,
  lender: (numbers) => Lender.fromNumbers(numbers),
  lent(question, loan, { isTimeless }, text) {
    const end = text.lastIndexOf(">");
    if (end < 0) throw noAnswer(text);
    const { policy } = question;
    const { isAdmitted, now, cost, state } = told(question, isTimeless, text.slice(0, end));
    const { states, loans } = state === "" ? { states: unused(policy), loans: [] } : parse(policy, state);
    verify(policy, states, now);
    const lender = Lender.fromNumbers(loans);
    lender.settle(policy, states, now);
    const answer = lender.accept(policy, states, now, cost, loan, granted(text.slice(end + 1)));
    if (isAdmitted !== (answer.decision[STATUS] === ALLOWED)) throw disagreement(isAdmitted);
    return answer;
  },
};

/** Reads the next loan of an answer, if there is one. */
function granted(text: string): Lent | undefined {
  if (text === "") return undefined;
  const numbers = /^(\d+):(\d+):(\d+)$/.exec(text)?.slice(1).map(Number);
  if (!numbers) throw noAnswer(text);
  return { number: numbers[0]!, units: numbers[1]!, until: Math.min(numbers[2]!, MAX_INSTANT) };
}
