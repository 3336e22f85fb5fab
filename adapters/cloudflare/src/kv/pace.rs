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
