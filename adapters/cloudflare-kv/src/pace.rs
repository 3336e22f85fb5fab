//! When a key may be read and written again.

use tidegate_core::{Millis, UnixMillis};

/// The longest pause between two tries to write a key.
pub(crate) const PAUSE_MAX: Millis = Millis::from_secs(32);

/// How long a count that a read did not find is left to replication before it is written again.
const REPLICATION: Millis = Millis::from_secs(5);

/// The writes of one key, of which the store takes one a second from all isolates together.
///
/// So each leaves room for the others that it knows of, and an uneven pause for those it does not: with an even one, who
/// writes every second would keep everybody else out. After a rejection the pause grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    last_try: Option<UnixMillis>,
    pause: Millis,
    throttled: bool,
    failed: u32,
}

impl Pace {
    /// How long until the key may be written.
    pub(crate) fn wait(&self, now: UnixMillis) -> Millis {
        match self.last_try {
            // A clock that was set back must not keep the key from being written until it has caught up.
            Some(last) if last.since(now) <= PAUSE_MAX => (last + self.pause).since(now),
            _ => Millis::ZERO,
        }
    }

    /// Counts a try, by one of so many `writers`: on average the next is due when each has had a turn.
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

    /// Others wrote in that second. Of those who are known the turn has made allowance, so this counts once.
    pub(crate) fn throttled(&mut self) {
        self.throttled = true;
    }

    /// The store is not well.
    pub(crate) fn failed(&mut self) {
        self.failed = (self.failed + 1).min(5);
    }

    /// Whether a count that a read did not find was written long enough ago to be lost.
    pub(crate) fn is_settled(&self, now: UnixMillis) -> bool {
        self.last_try.is_none_or(|last| now.since(last) >= REPLICATION || last.since(now) > PAUSE_MAX)
    }
}

/// The reads of one key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freshness {
    until: Option<UnixMillis>,
}

impl Freshness {
    /// Whether to read now. Until the first answer everyone does; after it one caller each time it runs out.
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
