//! A clock that does not go back.

use crate::{Millis, UnixMillis};

/// How far readings of one clock may come in the wrong order: threads read it, and then wait for their turn.
pub(super) const JITTER: Millis = Millis::new(20);

/// The time since an arbitrary instant, by a clock that may be set. When it is set back, this one goes on from where it was; when
/// it is set forward, so is this one. It may lag behind by [`JITTER`], so whatever ends by it ends that much earlier.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steady {
    latest: UnixMillis,
    /// By how much the clock was set back.
    behind: Millis,
}

impl Steady {
    pub(super) fn read(&mut self, told: UnixMillis) -> UnixMillis {
        let now = told + self.behind;
        let back = self.latest.since(now);
        if back > JITTER {
            self.behind = self.behind + back;
        }
        self.latest = self.latest.max(now);
        self.latest
    }

    /// The time, where the clock was read some time ago.
    pub(super) fn at_least(&self, told: UnixMillis) -> UnixMillis {
        self.latest.max(told + self.behind)
    }

    /// The instant at which this was [read](Self::read), or a later one if the clock was set back since. Never after the latest.
    pub(super) fn when(&self, told: UnixMillis) -> UnixMillis {
        self.latest.min(told + self.behind)
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
}
