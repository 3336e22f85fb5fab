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

#[cfg(test)]
mod tests {
    use super::{Demand, amount, is_unmissed};
    use crate::Millis;
    use crate::lending::Question;

    const MINUTE: Millis = Millis::from_secs(60);

    /// A question of a borrower that has spent so many units in so many milliseconds.
    fn question(spent: u64, within: u64) -> Question {
        Question { slice: 1_000, lifetime: MINUTE, spent, within: Millis::new(within), back: None }
    }

    /// The only borrower of a window with so much left.
    fn alone(question: &Question, left: u64) -> Demand<'_> {
        Demand { question, kept: 0, left, borrowers: 1, unspent: 0, longest: MINUTE, pins: false }
    }

    #[test]
    fn loans_of_a_few_units_grow_as_they_are_spent() {
        for (spent, units) in [(1, 1), (2, 2), (3, 2), (8, 6), (31, 21)] {
            assert_eq!(amount(&alone(&question(spent, 1_000), 1_000)), (units, MINUTE), "{spent}");
        }
    }

    #[test]
    fn far_from_the_limit_a_loan_is_what_its_life_probably_takes() {
        // 32 are expected, and two standard deviations of 5, and 2.
        assert_eq!(amount(&alone(&question(32, 60_000), 1_000)), (44, MINUTE));
        // At most twice what was spent.
        assert_eq!(amount(&alone(&question(64, 10_000), 1_000)), (128, MINUTE));
        // 10 are expected, but a quarter of what was spent can be spared, or a quarter of a part of what is left.
        let (asked, longest) = (question(100, 60_000), Millis::from_secs(6));
        assert_eq!(amount(&Demand { longest, ..alone(&asked, 1_000) }), (25, longest));
        assert_eq!(amount(&Demand { longest, borrowers: 3, ..alone(&asked, 240) }), (20, longest));
        // What is kept is a part of it, and no loan is larger than asked for.
        let asked = question(32, 60_000);
        assert_eq!(amount(&Demand { kept: 10, ..alone(&asked, 1_000) }), (34, MINUTE));
        let small = Question { slice: 40, ..asked };
        assert_eq!(amount(&alone(&small, 1_000)), (40, MINUTE));
    }

    #[test]
    fn what_nobody_misses_is_lent_before_anything_is_known() {
        let asked = question(1, 1_000);
        assert_eq!(amount(&alone(&asked, 4_096 * 50)), (50, MINUTE));
        assert_eq!(amount(&Demand { borrowers: 2, ..alone(&asked, 4_096 * 50) }), (25, MINUTE));
        assert!(is_unmissed(50, 4_096 * 64 * 50) && !is_unmissed(51, 4_096 * 64 * 50));
    }

    #[test]
    fn near_the_limit_loans_are_smaller_and_shorter() {
        let (asked, at_once) = (question(64, 10_000), question(64, 100));
        let near = |demand| {
            let (units, life) = amount(&demand);
            (units, life.get())
        };
        // Half of what is left, for twice as long as it was spent in.
        assert_eq!(near(alone(&asked, 100)), (50, 15_625));
        assert_eq!(near(Demand { borrowers: 2, ..alone(&asked, 100) }), (25, 7_812));
        assert_eq!(near(Demand { kept: 10, ..alone(&asked, 100) }), (50, 18_750));
        assert_eq!(near(Demand { longest: Millis::new(9_000), ..alone(&asked, 100) }).1, 9_000);
        assert_eq!(near(alone(&at_once, 100)), (50, 1_000));
        // Where it begins: three quarters of what nobody has spent, and half of it in a bucket that loans keep from draining.
        assert_eq!(near(alone(&asked, 171)), (128, 60_000));
        assert_eq!(near(alone(&asked, 170)), (85, 26_562));
        assert_eq!(near(Demand { pins: true, ..alone(&asked, 256) }), (128, 60_000));
        assert_eq!(near(Demand { pins: true, ..alone(&asked, 255) }), (127, 39_687));
        // What others hold unspent counts, but cannot be lent.
        assert_eq!(near(Demand { unspent: 43, ..alone(&asked, 128) }), (128, 60_000));
        assert_eq!(near(Demand { unspent: 1_000, ..alone(&asked, 127) }), (63, 19_687));
        assert_eq!(near(Demand { borrowers: 2, unspent: 43, ..alone(&asked, 300) }), (128, 60_000));
        assert_eq!(near(Demand { borrowers: 2, unspent: 41, ..alone(&asked, 300) }), (75, 23_437));
    }
}
