//! How much to lend, and for how long.

use super::{LOANS_MAX, Question};
use crate::Millis;

/// The least life of a loan near the limit: a borrower far away needs some tenths of a second to hear of it.
const LIFE_MIN: Millis = Millis::from_secs(1);

/// No loan is larger, so that a script computes with exact integers in doubles.
pub(super) const UNITS_MAX: u64 = 1 << 32;

/// No borrower looks further back: it forgets half when it has asked for two lifetimes.
const WITHIN_MAX: Millis = Millis::new(1 << 18);

/// Fewer units than this are a few. Then loans about double as they are spent: 1, 2, 4, 8.
const FEW: u64 = 32;

/// Nobody misses one of so many parts of what is left. All borrowers of a key together are lent as much before anything is known of
/// them, and as much is not returned by those that are idle.
const UNMISSED: u64 = 4_096;

/// What the lender knows when it is asked for a loan.
pub(super) struct Demand<'a> {
    pub(super) question: &'a Question,
    /// What the borrower keeps of its last loan.
    pub(super) kept: u64,
    /// What the row has left.
    pub(super) left: u64,
    /// How many borrowers share it, this one included.
    pub(super) borrowers: u64,
    /// What others have probably not spent of their loans.
    pub(super) unspent: u64,
    /// The longest life that the policy allows.
    pub(super) longest: Millis,
    /// Whether lent units keep a bucket from draining.
    pub(super) pins: bool,
}

/// Whether nobody misses so many units of what is left, even if each borrower holds as many.
pub(super) const fn is_unmissed(units: u64, left: u64) -> bool {
    units <= left / (UNMISSED * LOANS_MAX as u64)
}

/// How many more units to lend, and for how long.
pub(super) fn amount(demand: &Demand<'_>) -> (u64, Millis) {
    let Demand { question, kept, left, borrowers, unspent, longest, pins } = *demand;
    let (spent, within) = (question.spent.min(UNITS_MAX), question.within.get().clamp(1, WITHIN_MAX.get()));
    let expected = spent * longest.get() / within;
    let spare = (left / (4 * borrowers)).min(spent / 4);
    // Requests do not come evenly: of independent ones, two standard deviations more than expected are enough most of the time. A few
    // requests tell little of those to come.
    let trusted = if spent < FEW { (2 * spent).div_ceil(3) } else { 2 * spent };
    let likely = (expected + 2 * expected.isqrt() + 2).max(spare).min(trusted).max(left / (UNMISSED * borrowers));
    let likely = likely.min(question.slice).saturating_sub(kept);
    // What all will probably spend, if they are alike, of what nobody has spent yet.
    let (all, unspent) = ((likely + kept).saturating_mul(borrowers), left + unspent + kept);
    let is_far = likely <= left && if pins { all <= unspent / 2 } else { all <= unspent * 3 / 4 };
    if is_far {
        return (likely, longest);
    }
    let units = likely.min(left / (2 * borrowers));
    let spent_within = 2 * (units + kept) * within / spent.max(1);
    (units, LIFE_MIN.max(Millis::new(spent_within)).min(longest))
}
