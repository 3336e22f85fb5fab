//! A clock that does not go back.

use crate::{Millis, UnixMillis};

/// How far readings of one clock may come in the wrong order: threads read it, and then wait for their turn.
pub(super) const JITTER: Millis = Millis::new(20);

/// The furthest that one reading advances the clock. Loans, denials and questions have ended long before. Only a key that was near its
/// limit gets no grace for longer than it must, if a process has slept for so long.
const LEAP_MAX: Millis = Millis::from_secs(86_400);

/// The time since an arbitrary instant, by a clock that may be set. When it is set back, this one goes on from where it was; when
/// it is set forward, so is this one, by [`LEAP_MAX`] at most: a clock that has told the end of time once must not keep it there. It may
/// lag behind by [`JITTER`], so whatever ends by it ends that much earlier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steady {
    latest: UnixMillis,
    /// By how much this one is ahead of the clock.
    ahead_ms: i64,
    /// Where it was at the last leap. What was read before is not known to be earlier.
    leapt_from: UnixMillis,
}

impl Steady {
    /// The time now.
    pub(super) fn read(&mut self, told: UnixMillis) -> UnixMillis {
        if self.latest.since(self.by(told)) > JITTER {
            self.set(told, self.latest);
        }
        self.advance(told)
    }

    /// The time, where the clock was read some time ago: it does not look as if it was set back.
    pub(super) fn advance(&mut self, told: UnixMillis) -> UnixMillis {
        let most = self.latest + LEAP_MAX;
        if self.by(told) > most {
            self.leapt_from = self.latest;
            self.set(told, most);
        }
        self.latest = self.at_least(told);
        self.latest
    }

    /// The same for a time that is computed, which does not count as a reading.
    pub(super) fn at_least(&self, told: UnixMillis) -> UnixMillis {
        self.latest.max(self.by(told).min(self.latest + LEAP_MAX))
    }

    /// The instant at which this was [read](Self::read), or a later one if the clock was set since. Never after the latest.
    pub(super) fn when(&self, told: UnixMillis) -> UnixMillis {
        self.by(told).clamp(self.leapt_from, self.latest)
    }

    const fn by(&self, told: UnixMillis) -> UnixMillis {
        UnixMillis::new(told.get().saturating_add_signed(self.ahead_ms))
    }

    const fn set(&mut self, told: UnixMillis, to: UnixMillis) {
        self.ahead_ms = to.get().cast_signed() - told.get().cast_signed();
    }
}

#[cfg(test)]
mod tests {
    use super::Steady;
    use crate::UnixMillis;

    #[test]
    fn a_clock_that_is_set_back_goes_on_from_where_it_was() {
        let mut steady = Steady::default();
        let mut read = |ms| steady.read(UnixMillis::new(ms)).get();
        assert_eq!([1_000, 1_010, 990, 1_011].map(&mut read), [1_000, 1_010, 1_010, 1_011]);
        assert_eq!([500, 501, 600].map(&mut read), [1_011, 1_012, 1_111]);
        assert_eq!([5_000, 4_000, 4_001].map(&mut read), [5_511, 5_511, 5_512]);
    }

    #[test]
    fn a_clock_that_has_told_the_end_of_time_goes_on() {
        const DAY: u64 = 86_400_000;
        let mut steady = Steady::default();
        let mut read = |ms| steady.read(UnixMillis::new(ms)).get();
        assert_eq!([1_800_000_000_000, 1_800_000_000_001].map(&mut read), [DAY, DAY + 1]);
        assert_eq!([u64::MAX, u64::MAX, 1_800_000_000_002].map(&mut read), [2 * DAY + 1; 3]);
        assert_eq!([1_800_000_000_003, 0, 1].map(&mut read), [2 * DAY + 2, 2 * DAY + 2, 2 * DAY + 3]);
        assert_eq!([DAY + 1, 2 * DAY + 2].map(&mut read), [3 * DAY + 3, 4 * DAY + 3]);
        // What was read before a leap is not later than that, and no earlier than the leap.
        assert_eq!(steady.when(UnixMillis::new(0)).get(), 3 * DAY + 3);
    }

    #[test]
    fn a_computed_time_is_no_reading() {
        let mut steady = Steady::default();
        steady.read(UnixMillis::new(1_000));
        assert_eq!(steady.at_least(UnixMillis::new(2_000)).get(), 2_000);
        assert_eq!(steady.at_least(UnixMillis::MAX).get(), 86_401_000);
        assert_eq!(
            (steady.advance(UnixMillis::new(900)).get(), steady.read(UnixMillis::new(1_001)).get()),
            (1_000, 1_001)
        );
    }
}
