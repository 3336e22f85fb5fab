//! Decides when to ask a store that has failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Health;
use crate::{ErrorKind, Millis, UnixMillis};

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
    /// How many decisions were made without the store.
    decisions: u64,
}

impl Breaker {
    pub(super) const fn new(at_most: Millis) -> Self {
        let (is_down, outage) = (AtomicBool::new(false), Mutex::new(None));
        Self { failures_max: 3, pause: Millis::from_secs(1), at_most, is_down, outage }
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store may be asked. Once it has failed too often, one caller in each pause may.
    pub(super) fn may_ask(&self, now: UnixMillis) -> bool {
        if !self.is_down.load(Ordering::Relaxed) {
            return true;
        }
        let mut outage = self.outage();
        let Some(outage) = outage.as_mut().filter(|outage| outage.failures >= self.failures_max) else { return true };
        if outage.wait(self.pause, now) > Millis::ZERO {
            return false;
        }
        outage.asked = now;
        true
    }

    /// How long until the store is asked again.
    pub(super) fn asks_after(&self, now: UnixMillis) -> Millis {
        self.outage().map_or(Millis::ZERO, |outage| outage.wait(self.pause, now))
    }

    /// Returns what has changed, if the store has now failed too often to be asked.
    pub(super) fn failed(&self, now: UnixMillis, kind: ErrorKind) -> Option<Health> {
        let mut outage = self.outage();
        let outage = outage.get_or_insert(Outage { since: now, failures: 0, asked: now, decisions: 0 });
        outage.failures = outage.failures.saturating_add(1);
        outage.asked = outage.asked.max(now);
        self.is_down.store(true, Ordering::Relaxed);
        (outage.failures == self.failures_max).then_some(Health::Down { error: kind })
    }

    /// Returns what has changed, if the store had failed too often to be asked.
    pub(super) fn answered(&self, now: UnixMillis) -> Option<Health> {
        if !self.is_down.load(Ordering::Relaxed) {
            return None;
        }
        let ended = self.outage().take();
        self.is_down.store(false, Ordering::Relaxed);
        let Outage { since, decisions, .. } = ended.filter(|outage| outage.failures >= self.failures_max)?;
        Some(Health::Up { after: now.since(since), decisions })
    }

    /// Counts a decision that was made without the store.
    pub(super) fn replaced(&self) {
        if let Some(outage) = self.outage().as_mut() {
            outage.decisions = outage.decisions.saturating_add(1);
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

impl Outage {
    /// What remains of the pause. Requests at the same time have slightly different clocks, so one that is a little behind waits
    /// too. A clock that was set back by more than the pause does not.
    fn wait(&self, pause: Millis, now: UnixMillis) -> Millis {
        let apart = now.since(self.asked).max(self.asked.since(now));
        if apart < pause { Millis::new(pause.get() - now.since(self.asked).get()) } else { Millis::ZERO }
    }
}
