use alloc::vec::Vec;
use core::future::Future;

use super::{Swap, Versioned, VersionedLimiter, VersionedValue};
use crate::limiter::{Capabilities, Ceiling, Drift, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::{Error, Millis};

/// A store with get and put, in which the last writer wins. A limiter over it is approximate. Its drift is
/// [`Drift::LAST_WRITER_WINS`], unless the adapter can state a smaller one.
///
/// See the [contract of all stores](super#contract).
pub trait BestEffort: MaybeSend + MaybeSync {
    /// The features that the store supports.
    fn capabilities(&self) -> Capabilities;

    /// Reads the value under `key`.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Writes the value under `key` unconditionally. The store keeps it for at least `ttl`, and removes it afterwards.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Removes the value under `key`.
    ///
    /// # Errors
    /// The reason why the store did not answer.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

impl Drift {
    /// The drift of a store in which the last writer wins: at most [`Ceiling::LastWriterWins`], and no early denials.
    pub const LAST_WRITER_WINS: Self = Self { ceiling: Ceiling::LastWriterWins, ..Self::WITHIN_LIMIT };
}

/// A [`Limiter`](crate::Limiter) over a [`BestEffort`] store. A decision takes one get, and one put if it charges. A denial
/// writes nothing.
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::Mutex;
/// use tidegate_core::store::{BestEffort, BestEffortLimiter};
/// use tidegate_core::{
///     Accuracy, Capabilities, Check, Drift, Error, Key, LimiterExt, Millis, Policy, Quota, UnixMillis,
/// };
///
/// /// A real store removes each row after its `ttl`.
/// #[derive(Default)]
/// struct Shelf(Mutex<HashMap<String, Vec<u8>>>);
///
/// impl BestEffort for Shelf {
///     fn capabilities(&self) -> Capabilities {
///         let accuracy = Accuracy::Approximate(Drift::LAST_WRITER_WINS);
///         Capabilities::EXACT.accuracy(accuracy).idempotency(false)
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
/// let limiter = BestEffortLimiter::new(Shelf::default());
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BestEffortLimiter<S>(VersionedLimiter<LastWriterWins<S>>);

impl<S: BestEffort> BestEffortLimiter<S> {
    /// A limiter over `store`.
    pub const fn new(store: S) -> Self {
        Self(VersionedLimiter::new(LastWriterWins(store)))
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.0.store().0
    }
}

impl<S: BestEffort> Limiter for BestEffortLimiter<S> {
    /// Without blocks: a request that is decided at the same time would end one.
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Reply, Error>> + MaybeSend {
        self.0.apply(operation)
    }
}

/// A store in which every swap succeeds.
#[derive(Clone, Debug)]
struct LastWriterWins<S>(S);

impl<S: BestEffort> Versioned for LastWriterWins<S> {
    type Version = ();

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().block(false)
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<()>>, Error> {
        let found = self.0.get(key).await?;
        Ok(found.map(|bytes| VersionedValue { bytes, version: () }))
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
