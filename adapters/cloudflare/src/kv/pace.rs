//! When a key may be read and written again.

use tidegate_core::{Millis, UnixMillis};

/// The longest pause between two attempts to write a key.
pub(crate) const PAUSE_MAX: Millis = Millis::from_secs(32);

/// Whether a key may be written that was due at an instant. If that is longer ahead than any pause, the clock was set back, which must
/// not block writes until it has caught up.
pub(crate) fn is_due(at: UnixMillis, now: UnixMillis, spacing: Millis) -> bool {
    at <= now || at.since(now) > PAUSE_MAX + spacing
}

/// How long to wait for replication before writing a count again that a read did not find.
const REPLICATION: Millis = Millis::from_secs(5);

/// Schedules the writes of one key. The store accepts one write per second from all isolates together.
///
/// Each isolate therefore leaves time for the isolates that it knows of. The pause is random, because otherwise an isolate that
/// writes every second would keep the others out. A rejected write makes the pause longer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    last_try: Option<UnixMillis>,
    pause: Millis,
    throttled: bool,
    failed: u32,
}

impl Pace {
    /// When the key may be written.
    pub(crate) fn due(&self) -> UnixMillis {
        self.last_try.map_or_else(UnixMillis::default, |last| last + self.pause)
    }

    /// Records an attempt. On average, the next one is due after each of the `writers` has had a turn.
    pub(crate) fn tried(&mut self, now: UnixMillis, spacing: Millis, writers: usize, draw: u64) {
        let refused = self.failed.max(u32::from(self.throttled));
        let turn = spacing.get().saturating_mul(writers as u64).saturating_mul(1 << refused);
        self.last_try = Some(now);
        self.pause = Millis::new((turn / 2).saturating_add(draw % turn.max(1))).min(PAUSE_MAX);
        if writers == 1 {
            self.pause = self.pause + Millis::new(spacing.get() / 2);
        }
        self.pause = self.pause.max(spacing);
    }

    pub(crate) fn succeeded(&mut self) {
        (self.throttled, self.failed) = (false, 0);
    }

    /// Records that another isolate wrote in the same second. The pause already allows for known isolates, so repeated
    /// rejections count once.
    pub(crate) fn throttled(&mut self) {
        self.throttled = true;
    }

    /// Records that the store failed.
    pub(crate) fn failed(&mut self) {
        self.failed = (self.failed + 1).min(5);
    }

    /// Whether the last write is so long ago that a count that a read did not find is lost.
    pub(crate) fn is_settled(&self, now: UnixMillis) -> bool {
        self.last_try.is_none_or(|last| now.since(last) >= REPLICATION || last.since(now) > PAUSE_MAX)
    }
}

/// Schedules the reads of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freshness {
    until: Option<UnixMillis>,
}

impl Freshness {
    /// Whether to read now. Every caller reads until the first answer arrives. Then one caller reads each time the answer
    /// becomes too old.
    pub(crate) fn claim(&mut self, now: UnixMillis, refresh: Millis) -> bool {
        match self.until {
            None => true,
            Some(until) if until > now && until <= now + refresh => false,
            Some(_) => {
                self.until = Some(now + refresh);
                true
            }
        }
    }

    pub(crate) fn answered(&mut self, now: UnixMillis, refresh: Millis) {
        self.until = self.until.max(Some(now + refresh));
    }

    pub(crate) fn is_over(&self, now: UnixMillis) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_testing::{NOW, at};

    use super::*;

    const SPACING: Millis = Millis::from_secs(1);

    /// The pause in milliseconds after an attempt, with this draw.
    fn pause(pace: &mut Pace, writers: usize, draw: u64) -> u64 {
        pace.tried(NOW, SPACING, writers, draw);
        pace.due().since(NOW).get()
    }

    #[test]
    fn each_isolate_that_writes_a_key_has_its_turn() {
        assert_eq!(Pace::default().due(), UnixMillis::default());
        assert_eq!([0, 499, 999].map(|draw| pause(&mut Pace::default(), 1, draw)), [1_000, 1_499, 1_999]);
        // Half a turn of all, and up to one more: a turn on average, and never less than the store allows.
        assert_eq!([0, 2_999, 3_000].map(|draw| pause(&mut Pace::default(), 3, draw)), [1_500, 4_499, 1_500]);
        assert_eq!(pause(&mut Pace::default(), 1_000, 0), PAUSE_MAX.get());
    }

    #[test]
    fn what_was_refused_is_tried_later_until_it_succeeds() {
        let mut pace = Pace::default();
        pace.throttled();
        pace.throttled();
        assert_eq!(pause(&mut pace, 2, 0), 2_000);
        for expected in [2_000, 4_000, 8_000, 16_000, 32_000, 32_000] {
            pace.failed();
            assert_eq!(pause(&mut pace, 2, 0), expected);
        }
        pace.succeeded();
        assert_eq!(pause(&mut pace, 2, 0), 1_000);
    }

    #[test]
    fn a_clock_that_was_set_back_blocks_neither_writes_nor_reads() {
        let longest = (PAUSE_MAX + SPACING).get();
        let due = [0, 1, longest, longest + 1].map(|ahead| is_due(at(ahead), NOW, SPACING));
        assert_eq!(due, [true, false, false, true]);
        let mut pace = Pace::default();
        assert!(pace.is_settled(NOW));
        pace.tried(at(40_000), SPACING, 1, 0);
        let settled = [7_999, 8_000, 40_000, 44_999, 45_000].map(|now| pace.is_settled(at(now)));
        assert_eq!(settled, [true, false, false, false, true]);
        let mut fresh = Freshness::default();
        fresh.answered(at(40_000), SPACING);
        assert_eq!([39_999, 40_000, 40_999, 41_000].map(|now| fresh.is_over(at(now))), [false, false, false, true]);
        assert!(!fresh.claim(at(40_999), SPACING));
        assert!(fresh.claim(at(39_999), SPACING));
    }

    #[test]
    fn one_caller_reads_once_an_answer_is_too_old() {
        let mut fresh = Freshness::default();
        // Every caller reads until the first answer arrives.
        assert!(fresh.is_over(NOW) && fresh.claim(NOW, SPACING) && fresh.claim(NOW, SPACING));
        fresh.answered(NOW, SPACING);
        assert_eq!([at(999), at(1_000), at(1_000)].map(|now| fresh.claim(now, SPACING)), [false, true, false]);
    }
}
