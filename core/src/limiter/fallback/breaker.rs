//! Decides when to ask a store that has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Millis, UnixMillis};

/// A circuit breaker on the caller's clock.
#[derive(Debug)]
pub(super) struct Breaker {
    pub(super) failures_max: u32,
    pub(super) pause: Millis,
    pub(super) at_most: Millis,
    /// Whether there is an outage, for the usual case without a lock.
    is_down: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

/// The failures since the last answer.
#[derive(Clone, Copy, Debug)]
struct Outage {
    since: UnixMillis,
    failures: u32,
    /// When the store was asked last.
    asked: UnixMillis,
}

impl Breaker {
    pub(super) const fn new(at_most: Millis) -> Self {
        let (is_down, outage) = (AtomicBool::new(false), Mutex::new(None));
        Self { failures_max: 3, pause: Millis::from_secs(1), at_most, is_down, outage }
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store has failed too often to be asked. It is then asked once in each pause.
    pub(super) fn is_open(&self, now: UnixMillis) -> bool {
        if !self.is_down.load(Ordering::Relaxed) {
            return false;
        }
        let mut outage = self.outage();
        let Some(outage) = outage.as_mut().filter(|outage| outage.failures >= self.failures_max) else { return false };
        // A clock that was set back must not keep the breaker open.
        if outage.asked <= now && now.since(outage.asked) < self.pause {
            return true;
        }
        outage.asked = now;
        false
    }

    pub(super) fn failed(&self, now: UnixMillis) {
        let mut outage = self.outage();
        let outage = outage.get_or_insert(Outage { since: now, failures: 0, asked: now });
        outage.failures = outage.failures.saturating_add(1);
        outage.asked = outage.asked.max(now);
        self.is_down.store(true, Ordering::Relaxed);
    }

    pub(super) fn answered(&self) {
        if self.is_down.load(Ordering::Relaxed) {
            *self.outage() = None;
            self.is_down.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn down_for(&self, now: UnixMillis) -> Option<Millis> {
        self.outage().map(|outage| now.since(outage.since))
    }

    /// Whether the outage is short enough for a fallback.
    pub(super) fn may_replace(&self, now: UnixMillis) -> bool {
        self.down_for(now).is_none_or(|down| down <= self.at_most)
    }
}
