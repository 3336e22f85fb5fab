//! A store whose outages are told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::gate::notice::Notices;
use crate::{Capabilities, Check, Decision, ErasedLimiter, Error, Limiter, Operation, Origin, Reply, UnixMillis};

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

impl<'s> Watched<'s> {
    pub(in crate::gate) fn new(name: &str, limiter: Box<dyn ErasedLimiter + 's>, notices: Arc<Notices>) -> Self {
        Self { name: name.into(), limiter, notices, is_down: AtomicBool::new(false), outage: Mutex::new(None) }
    }

    /// Hears what the store replies.
    pub(super) fn watch(&self, operation: &Operation<'_>, reply: &Result<Reply, Error>) {
        // A reset has no time.
        if !matches!(operation, Operation::Reset { .. }) {
            self.hear(operation.now(), reply.as_ref().map(Reply::decided));
        }
    }

    /// Hears what the store decides at `now`, or its error.
    #[inline]
    pub(super) fn hear(&self, now: UnixMillis, decided: Result<Option<&Decision>, &Error>) {
        match decided {
            Err(error) if error.kind().is_store_failure() => self.failed(error, now),
            // What a borrower, a cache or a replacement within the store decides says nothing about it.
            Ok(Some(decision)) if decision.origin() == Origin::Store => self.answered(now),
            _ => {}
        }
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

    #[inline]
    fn answered(&self, now: UnixMillis) {
        if self.is_down.load(Ordering::Relaxed) {
            self.is_up(now);
        }
    }

    #[cold]
    fn is_up(&self, now: UnixMillis) {
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

impl Limiter for Watched<'_> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.erased_capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.limiter.erased_apply(operation).await;
        self.watch(&operation, &reply);
        reply
    }

    #[inline]
    fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        let decided = self.limiter.erased_check_at_once(check);
        if let Some(decided) = &decided {
            self.hear(check.now, decided.as_ref().map(Some));
        }
        decided
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
