//! A store whose outages are told.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gate::notice::Notices;
use crate::{Decision, ErasedLimiter, Error, Origin, UnixMillis};

/// A store of a gate. An outage begins with a failed call and ends with an answer, whatever is around the store.
pub(in crate::gate) struct Watched<'s> {
    pub(in crate::gate) name: Box<str>,
    pub(in crate::gate) limiter: Box<dyn ErasedLimiter + 's>,
    notices: Arc<Notices>,
    /// Whether there is an outage, for the usual case without a lock.
    is_down: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

struct Outage {
    since: UnixMillis,
    failures: u64,
    is_told: bool,
}

/// What is answered: whether by the store itself.
pub(super) trait OfStore {
    fn is_of_the_store(&self) -> bool;
}

impl OfStore for Decision {
    /// What a borrower, a cache or a replacement within the store decides says nothing about it.
    fn is_of_the_store(&self) -> bool {
        self.origin() == Origin::Store
    }
}

#[cfg(feature = "lending")]
impl OfStore for crate::lending::Answer {
    fn is_of_the_store(&self) -> bool {
        self.decision.is_of_the_store()
    }
}

impl<'s> Watched<'s> {
    pub(in crate::gate) fn new(name: &str, limiter: Box<dyn ErasedLimiter + 's>, notices: Arc<Notices>) -> Self {
        Self { name: name.into(), limiter, notices, is_down: AtomicBool::new(false), outage: Mutex::new(None) }
    }

    /// Waits for what the store answers at `now`.
    pub(super) async fn watch<T: OfStore>(
        &self,
        now: UnixMillis,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answered = call.await;
        match &answered {
            Err(error) if error.kind().is_store_failure() => self.failed(error, now),
            Ok(answer) if answer.is_of_the_store() => self.answered(now),
            _ => {}
        }
        answered
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &Error, now: UnixMillis) {
        let mut outage = self.outage();
        if outage.is_none() {
            self.is_down.store(true, Ordering::Relaxed);
            #[cfg(feature = "metrics")]
            crate::limiter::fallback::stores_down(&self.name).increment(1.0);
        }
        let outage = outage.get_or_insert(Outage { since: now, failures: 0, is_told: false });
        outage.failures = outage.failures.saturating_add(1);
        outage.is_told = outage.is_told || self.notices.down(&self.name, error, now);
    }

    fn answered(&self, now: UnixMillis) {
        if !self.is_down.load(Ordering::Relaxed) {
            return;
        }
        let Some(Outage { since, failures, is_told }) = self.outage().take() else { return };
        self.is_down.store(false, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        crate::limiter::fallback::stores_down(&self.name).decrement(1.0);
        // An outage that nobody was told of has no end to tell.
        if is_told {
            self.notices.up(&self.name, now.since(since), failures);
        }
    }
}

/// A store that is gone is not down.
#[cfg(feature = "metrics")]
impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if *self.is_down.get_mut() {
            crate::limiter::fallback::stores_down(&self.name).decrement(1.0);
        }
    }
}
