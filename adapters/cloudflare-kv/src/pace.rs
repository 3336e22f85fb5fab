//! When a key may be read and written again.

use tollgate_core::{Millis, UnixMillis};

/// The longest pause between two tries to write a key that is throttled.
pub(crate) const PAUSE_MAX: Millis = Millis::from_secs(32);

/// How long a count that a read did not find is left to replication before it is written again.
const REPLICATION: Millis = Millis::from_secs(5);

/// The writes of one key: no two tries within the spacing, and longer pauses while the store throttles.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    last_try: Option<UnixMillis>,
    pause: Millis,
}

impl Pace {
    pub(crate) const fn new(spacing: Millis) -> Self {
        Self { last_try: None, pause: spacing }
    }

    /// How long until the key may be written.
    pub(crate) fn wait(&self, now: UnixMillis) -> Millis {
        match self.last_try {
            // A clock that was set back must not keep the key from being written until it has caught up.
            Some(last) if last.since(now) <= PAUSE_MAX => (last + self.pause).since(now),
            _ => Millis::ZERO,
        }
    }

    pub(crate) fn tried(&mut self, now: UnixMillis) {
        self.last_try = Some(now);
    }

    pub(crate) fn succeeded(&mut self, spacing: Millis) {
        self.pause = Millis::new(self.pause.get() / 2).max(spacing);
    }

    /// Doubles the pause, and a part of it that differs from isolate to isolate, so that they do not meet again.
    pub(crate) fn refused(&mut self, draw: u64) {
        let doubled = self.pause.get().saturating_mul(2);
        self.pause = Millis::new(doubled + draw % (doubled / 2 + 1)).min(PAUSE_MAX);
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
