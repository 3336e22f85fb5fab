//! Parts of a quota that an isolate borrows and spends without a round trip.

use std::num::NonZero;

use tidegate_core::lending::Lease;
use tidegate_core::store::LendingLimiter;
use tidegate_core::{Capabilities, Error, Limiter, Millis, Operation, Reply, UnixMillis};

use crate::durable_objects::store::{DurableObjects, DurableObjectsLimiter, Namespace};

/// A limiter that leases parts of a quota from the key's object, and decides without a call as long as a lease or a denial holds.
///
/// It is the core's [`LendingLimiter`] over objects, which says what it promises and costs. Keep one for the isolate's life, in a
/// `static` or a `thread_local`, because it holds the leases.
#[derive(Debug)]
pub struct Leases<'s, N> {
    limiter: LendingLimiter<'s, DurableObjectsLimiter<N>>,
}

impl<'s, N: Namespace + 's> Leases<'s, N> {
    /// A limiter that leases up to `slice` units at a time, for up to `lifetime`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](tidegate_core::ErrorKind::Invalid) if `lifetime` is zero or longer than a minute.
    pub fn new(store: DurableObjects<N>, slice: NonZero<u64>, lifetime: Millis) -> Result<Self, Error> {
        Self::with_lease(store, Lease::new(slice.get(), lifetime))
    }

    /// The same with all that a lease may say, but its deadline, which is that of the store. A Worker that passes [`Leases::after`] to
    /// `waitUntil` with each response sets [`Lease::in_background`]: then no request of a steady client waits for a lease, idle
    /// isolates return theirs, and there may be a [grace](Lease::grace).
    ///
    /// # Errors
    /// As [`Leases::new`].
    pub fn with_lease(store: DurableObjects<N>, lease: Lease) -> Result<Self, Error> {
        let deadline = store.config().deadline;
        Ok(Self { limiter: LendingLimiter::new(store.limiter(), Lease { deadline, ..lease })?.apart() })
    }

    /// What is left to do after a response: see [`LendingLimiter::after`].
    pub async fn after(&self, clock: impl Fn() -> UnixMillis, pause: impl Future<Output = ()>) {
        self.limiter.after(clock, pause).await;
    }
}

impl<'s, N: Namespace + 's> Limiter for Leases<'s, N> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        self.limiter.apply(operation).await
    }
}
