//! Parts of a quota that an isolate borrows and spends without a round trip.

use std::num::NonZero;

use tidegate_core::lending::Lease;
use tidegate_core::store::{LendingLimiter, lending_capabilities};
use tidegate_core::{Capabilities, Error, Limiter, Millis, Operation, Reply, UnixMillis};

use crate::durable_objects::store::{CAPABILITIES, DurableObjects, DurableObjectsLimiter, Namespace};

/// A limiter that leases parts of a quota from the key's object, and decides without a call as long as a lease or a denial holds.
///
/// It is the core's [`LendingLimiter`] over objects, which says what it promises and costs. Keep one for the isolate's life, in a
/// `static` or a `thread_local`, because it holds the leases.
#[derive(Debug)]
pub struct Leases<'s, N> {
    limiter: LendingLimiter<'s, DurableObjectsLimiter<N>>,
}

/// The capabilities of [`Leases`] with a slice and a lifetime: those of every limiter that [borrows](lending_capabilities).
///
/// ```
/// use std::num::NonZero;
/// use tidegate_core::{Load, Millis};
/// const SLICE: NonZero<u64> = NonZero::new(10).unwrap();
/// let can = tidegate_cloudflare::durable_objects::lease_capabilities(SLICE, Millis::from_secs(2));
/// let load = Load { limit: 1_000, quota: 1_000, in_flight: 500, locations: 3 };
/// assert_eq!((can.accuracy.floor(load), can.accuracy.ceiling(load)), (940, 1_000));
/// ```
#[must_use]
pub const fn lease_capabilities(slice: NonZero<u64>, lifetime: Millis) -> Capabilities {
    lending_capabilities(CAPABILITIES, slice.get(), lifetime)
}

impl<'s, N: Namespace + 's> Leases<'s, N> {
    /// A limiter that leases up to `slice` units at a time, for up to `lifetime`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](tidegate_core::ErrorKind::Invalid) if `lifetime` is zero or longer than a minute.
    pub fn new(store: DurableObjects<N>, slice: NonZero<u64>, lifetime: Millis) -> Result<Self, Error> {
        Self::with_lease(store, Lease::new(slice.get(), lifetime))
    }

    /// The same, for a Worker that passes [`Leases::after`] to `waitUntil` with each response. Then no request of a steady client
    /// waits for a lease, and idle isolates return theirs.
    ///
    /// # Errors
    /// As [`Leases::new`].
    pub fn in_background(store: DurableObjects<N>, slice: NonZero<u64>, lifetime: Millis) -> Result<Self, Error> {
        Self::with_lease(store, Lease { in_background: true, ..Lease::new(slice.get(), lifetime) })
    }

    fn with_lease(store: DurableObjects<N>, lease: Lease) -> Result<Self, Error> {
        let deadline = store.config().deadline;
        Ok(Self { limiter: LendingLimiter::new(store.limiter(), Lease { deadline, ..lease })?.apart() })
    }

    /// What is left to do after a response: see [`LendingLimiter::after`].
    pub async fn after(&self, now: UnixMillis) {
        self.limiter.after(now).await;
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
