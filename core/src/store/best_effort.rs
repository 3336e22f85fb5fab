use alloc::vec::Vec;
use core::future::Future;

use super::{Found, Swap, Versioned, VersionedLimiter};
use crate::limiter::{Capabilities, MaybeSend, MaybeSync};
use crate::{Error, Millis};

/// A store with get and put, where the last writer wins: soft, by a drift its adapter declares.
pub trait BestEffort: MaybeSend + MaybeSync {
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// The value under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Writes, whatever is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Removes what is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// A [`Limiter`](crate::Limiter) over a [`BestEffort`] store: one get, and one put for what was charged. A denial writes
/// nothing.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tollgate_core::store::{BestEffort, BestEffortLimiter};
/// use tollgate_core::{
///     Accuracy, Capabilities, Check, Drift, Error, Floor, Key, Limiter, Millis, Policy, Quota, UnixMillis,
/// };
///
/// #[derive(Default)]
/// struct Shelf(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl BestEffort for Shelf {
///     fn capabilities(&self) -> Capabilities {
///         // All that are under way may have read the same count.
///         let drift = Drift { formula: "limit x in_flight", ceiling: |load| load.limit * load.in_flight, floor: Floor::NOTHING_HELD };
///         Capabilities { accuracy: Accuracy::Soft(drift), idempotency: false, ..Capabilities::EXACT }
///     }
///
///     async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
///         Ok(self.0.lock().unwrap().get(key).cloned())
///     }
///
///     async fn put(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<(), Error> {
///         self.0.lock().unwrap().insert(key.into(), bytes.into());
///         Ok(())
///     }
///
///     async fn delete(&self, key: &str) -> Result<(), Error> {
///         self.0.lock().unwrap().remove(key);
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # pollster::block_on(async {
/// let limiter = BestEffortLimiter::best_effort(Shelf::default());
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
pub type BestEffortLimiter<S> = VersionedLimiter<LastWriterWins<S>>;

impl<S: BestEffort> BestEffortLimiter<S> {
    /// A limiter over a store where the last writer wins.
    pub const fn best_effort(store: S) -> Self {
        Self::new(LastWriterWins(store))
    }
}

/// A [`BestEffort`] store as a [`Versioned`] one in which every swap is won, whatever came between.
#[derive(Clone, Debug)]
pub struct LastWriterWins<S>(S);

impl<S: BestEffort> Versioned for LastWriterWins<S> {
    type Version = ();

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn read(&self, key: &str) -> Result<Option<Found<()>>, Error> {
        let found = self.0.get(key).await?;
        Ok(found.map(|bytes| Found { bytes, version: () }))
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.0.put(key, bytes, ttl).await.map(|()| Swap::Done)
    }

    async fn update(&self, key: &str, bytes: &[u8], (): (), ttl: Millis) -> Result<Swap, Error> {
        self.create(key, bytes, ttl).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key).await
    }
}
