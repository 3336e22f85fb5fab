//! How much a borrower asks for.

use super::{LOANS_MAX, Lease, UNITS_MAX, WITHIN_MAX};
use crate::Millis;

/// Fewer units than this are a few. Then loans about double as they are spent: 1, 2, 4, 8.
const FEW: u64 = 32;

/// Nobody misses one of so many parts of what is left. A borrower asks for as much before it knows anything of its requests, and all
/// borrowers of a key together do not return as much when they are idle.
const UNMISSED: u64 = 4_096;

/// Whether nobody misses so many units of what is left, even if each borrower holds as many.
pub(super) const fn is_unmissed(units: u64, left: u64) -> bool {
    units <= left / (UNMISSED * LOANS_MAX as u64)
}

/// What keys usually spend after a first request, within a lifetime each: a mean in which the last keys count most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual {
    keys: u64,
    spent: u64,
}

/// So many units count of a key: what a few keys spend in great amounts is not usual.
const OF_A_KEY: u64 = 8;

/// When there are so many keys, half of what is known of them is forgotten.
const OF_KEYS: u64 = 256;

impl Usual {
    /// A key's first request.
    pub(super) const fn begin(&mut self) {
        if self.keys == OF_KEYS {
            (self.keys, self.spent) = (self.keys / 2, self.spent / 2);
        }
        self.keys += 1;
    }

    /// A further one of a key that has spent so much.
    pub(super) fn count(&mut self, spent: u64, cost: u64) {
        self.spent += cost.min(OF_A_KEY.saturating_sub(spent));
    }

    /// The units of a key, rounded up.
    pub(super) fn units(&self) -> u64 {
        self.spent.div_ceil(self.keys.max(1))
    }
}

/// The units that a borrower wants, and the time in which it expects to spend them. Its requests have spent `spent` in `within`, and
/// `left` are left.
pub(super) fn wanted(spent: u64, within: Millis, left: u64, lease: &Lease) -> (u64, Millis) {
    let (spent, within) = (spent.min(UNITS_MAX), within.get().clamp(1, WITHIN_MAX.get()));
    let expected = spent * lease.lifetime.min(WITHIN_MAX).get() / within;
    // Requests do not come evenly: of independent ones, two standard deviations more than expected are enough most of the time. A few
    // requests tell little of those to come.
    let trusted = if spent < FEW { (2 * spent).div_ceil(3) } else { 2 * spent };
    let likely = (expected + 2 * expected.isqrt() + 2).max(spent / 4).min(trusted);
    let wanted = likely.max(left / UNMISSED).min(lease.slice).min(UNITS_MAX);
    (wanted, Millis::new(wanted * within / spent.max(1)))
}

#[cfg(test)]
mod tests {
    use super::{Lease, Usual, is_unmissed, wanted};
    use crate::Millis;

    const MINUTE: Millis = Millis::from_secs(60);

    /// What is wanted after so many units in so many milliseconds, of which at most a slice may be held for a lifetime.
    fn asked(spent: u64, within: u64, left: u64, slice: u64, lifetime: Millis) -> (u64, u64) {
        let (units, within) = wanted(spent, Millis::new(within), left, &Lease::new(slice, lifetime));
        (units, within.get())
    }

    #[test]
    fn loans_of_a_few_units_grow_as_they_are_spent() {
        for (spent, units) in [(0, 0), (1, 1), (2, 2), (3, 2), (8, 6), (31, 21), (32, 64)] {
            assert_eq!(asked(spent, 1_000, 1_000, 1_000, MINUTE).0, units, "{spent}");
        }
    }

    #[test]
    fn a_borrower_wants_what_a_lifetime_probably_takes() {
        // 32 are expected, and two standard deviations of 5, and 2.
        assert_eq!(asked(32, 60_000, 1_000, 1_000, MINUTE), (44, 82_500));
        // At most twice what was spent.
        assert_eq!(asked(64, 10_000, 1_000, 1_000, MINUTE), (128, 20_000));
        // 10 are expected, but a quarter of what was spent saves a call.
        assert_eq!(asked(100, 60_000, 1_000, 1_000, Millis::from_secs(6)), (25, 15_000));
        // No loan is larger than a slice.
        assert_eq!(asked(32, 60_000, 1_000, 40, MINUTE), (40, 75_000));
        assert_eq!(asked(32, 60_000, 1_000, 0, MINUTE), (0, 0));
    }

    #[test]
    fn what_nobody_misses_is_wanted_before_anything_is_known() {
        assert_eq!(asked(0, 0, 4_096 * 50, 1_000, MINUTE), (50, 50));
        assert_eq!(asked(1, 1_000, 4_096 * 50, 1_000, MINUTE), (50, 50_000));
        assert!(is_unmissed(50, 4_096 * 64 * 50) && !is_unmissed(51, 4_096 * 64 * 50));
    }

    #[test]
    fn what_is_usual_is_what_the_last_keys_spend_and_no_key_counts_for_many() {
        let mut usual = Usual::default();
        let mut send = |keys: u64, costs: &[u64]| {
            for _ in 0..keys {
                usual.begin();
                costs.iter().fold(0, |spent, cost| {
                    usual.count(spent, *cost);
                    spent + cost
                });
            }
            usual.units()
        };
        assert_eq!(send(3, &[]), 0);
        // 4 keys, of which one has spent 3.
        assert_eq!(send(1, &[1, 1, 1]), 1);
        // 8 of a million, and of 5 keys.
        assert_eq!(send(1, &[1, u64::MAX - 1]), 3);
        assert_eq!(send(2_000, &[3, 2]), 5);
        // Half is forgotten, and again.
        assert_eq!((send(2_000, &[]), send(1, &[1])), (0, 1));
    }

    #[test]
    fn no_number_overflows() {
        let most = (1 << 32, 1 << 50);
        assert_eq!(asked(u64::MAX, u64::MAX, u64::MAX, u64::MAX, MINUTE), (most.0, 1 << 18));
        assert_eq!(asked(0, u64::MAX, u64::MAX, u64::MAX, Millis::new(u64::MAX)), most);
    }
}
