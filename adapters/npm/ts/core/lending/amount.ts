/** The longest life of a loan. */
export const LIFETIME_MAX = 60_000;

/** No loan is larger. So all products here are below 2^53, and exact. */
export const UNITS_MAX = 2 ** 32;

/** The least life of a loan near the limit: a borrower far away needs some tenths of a second to hear of it. */
const LIFE_MIN = 1_000;

/** No borrower looks further back: it forgets half when it has asked for two lifetimes. */
const WITHIN_MAX = 2 ** 18;

/** Fewer units than this are a few. Then loans about double as they are spent: 1, 2, 4, 8. */
const FEW = 32;

/** The most loans of one key at a time. Further borrowers get none. */
export const LOANS_MAX = 64;

/**
 * Nobody misses one of so many parts of what is left. All borrowers of a key together are lent as much before anything is known of them,
 * and as much is not returned by those that are idle.
 */
const UNMISSED = 4_096;

/** What a borrower asks along with a check. */
export interface LoanQuestion {
  /** What the borrower's requests have cost, whether admitted or not. */
  spent: number;
  /** In which time. */
  within: number;
  /** The most units that the borrower may hold. */
  slice: number;
  /** The longest life of a loan or a denial. */
  lifetime: number;
  /** What becomes of the borrower's last loan. */
  back: Returned | undefined;
}

/** What becomes of a loan. The part that is neither given back nor kept was spent. */
export interface Returned {
  /** The number of the loan. */
  loan: number;
  /** Given back: the borrower will not spend it. */
  unspent: number;
  /** Kept: the borrower still spends it, and it becomes part of the next loan. */
  kept: number;
}

/** Whether nobody misses so many units of what is left, even if each borrower holds as many. */
export function isUnmissed(units: number, left: number): boolean {
  return units <= Math.floor(left / (UNMISSED * LOANS_MAX));
}

/**
 * How many more units to lend, and for how long. The borrower still keeps `kept`, `left` are left, `borrowers` share them, others have
 * probably not spent `unspent`, and `pins` tells that lent units keep a bucket from draining.
 */
export function amount(
  question: LoanQuestion,
  kept: number,
  left: number,
  borrowers: number,
  unspent: number,
  longest: number,
  pins: boolean,
): [units: number, life: number] {
  const [spent, within] = [Math.min(question.spent, UNITS_MAX), Math.min(Math.max(question.within, 1), WITHIN_MAX)];
  const expected = Math.floor((spent * longest) / within);
  const spare = Math.min(Math.floor(left / (4 * borrowers)), Math.floor(spent / 4));
  // Requests do not come evenly: of independent ones, two standard deviations more than expected are enough most of the time. A few
  // requests tell little of those to come.
  const trusted = spent < FEW ? Math.ceil((2 * spent) / 3) : 2 * spent;
  // Below 2^52, a square root that is rounded to a double is never rounded up to a whole number.
  const wanted = Math.min(Math.max(expected + 2 * Math.floor(Math.sqrt(expected)) + 2, spare), trusted);
  const likely = Math.max(Math.min(Math.max(wanted, Math.floor(left / (UNMISSED * borrowers))), question.slice) - kept, 0);
  // What all will probably spend, if they are alike, of what nobody has spent yet.
  const [all, nobodySpent] = [(likely + kept) * borrowers, left + unspent + kept];
  if (likely <= left && all <= Math.floor(pins ? nobodySpent / 2 : (nobodySpent * 3) / 4)) return [likely, longest];
  const units = Math.min(likely, Math.floor(left / (2 * borrowers)));
  return [units, Math.min(Math.max(LIFE_MIN, Math.floor((2 * (units + kept) * within) / Math.max(spent, 1))), longest)];
}
