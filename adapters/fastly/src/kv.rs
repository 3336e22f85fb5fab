//! KV Store: a decision is a read and a conditional write.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift, Error, MaybeSend, MaybeSync, Millis};

/// A limiter on KV Store.
pub type KvLimiter<S> = VersionedLimiter<Kv<S>>;

/// How far all PoPs together may exceed a limit. Within a PoP, a write succeeds only over what was read, so every admitted
/// request is counted. Between PoPs the store is eventually consistent, and this formula assumes only that each PoP counts
/// its own requests.
///
/// A stale view shows less than was counted, never more, so no client is denied early.
pub const DRIFT: Drift = Drift::PER_LOCATION;

/// The capabilities of KV Store.
pub const CAPABILITIES: Capabilities = Capabilities::EXACT
    .accuracy(Accuracy::Approximate(DRIFT))
    .algorithms(Capabilities::COUNTING)
    .dimensions(Dimensions::One)
    .block(false)
    .idempotency(false)
    .round_trips(2);

/// The operations of KV Store that a limiter needs. An app uses `fastly::KVStore`, a test a stand-in.
///
/// Calls block, like the platform's.
pub trait KeyValue: MaybeSend + MaybeSync {
    /// Returns the value under `key` and its generation, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn lookup(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error>;

    /// Writes if a condition holds.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Duration) -> Result<Inserted, Error>;

    /// Removes what is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn delete(&self, key: &str) -> Result<(), Error>;
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Nothing is stored under the key: the platform's mode `Add`.
    New,
    /// The stored value has this generation: the platform's `if_generation_match`.
    Over(u64),
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The value was written.
    Done,
    /// The condition did not hold.
    Conflict,
    /// The store refused the write because of too many requests. Nothing was written.
    Refused,
}

/// KV Store, as a [`Versioned`] store.
///
/// A decision reads the state and writes the new one on the condition that the stored state has not changed. If it has, or
/// if the store refuses the write, the decision starts again, up to [`VersionedLimiter::attempts`] times. A request is
/// admitted only once its write has succeeded. A denial writes nothing.
///
/// # Errors
/// - [`Contended`](tidegate_core::ErrorKind::Contended): out of attempts, or KV Store refuses requests because there are too
///   many. A client can cause this, so deny it.
/// - [`Unavailable`](tidegate_core::ErrorKind::Unavailable): KV Store failed.
/// - [`Corrupt`](tidegate_core::ErrorKind::Corrupt): the stored value is not Tidegate's. It is left as it is; a reset removes
///   it.
pub struct Kv<S> {
    store: S,
    min_ttl: Millis,
    lost: AtomicU64,
    refused: AtomicU64,
}

/// Counts of lost and refused writes; see [`Kv::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Writes whose condition did not hold. Each was retried.
    pub lost: u64,
    /// Writes that the store refused because of too many requests. Each was retried.
    pub refused: u64,
}

impl<S: KeyValue> Kv<S> {
    /// A store over `store`.
    pub const fn new(store: S) -> Self {
        Self { store, min_ttl: Millis::new(0), lost: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// Keeps every state for at least this long by the platform's clock. This is for tests, whose own clock may stand still.
    #[cfg(feature = "testing")]
    #[must_use]
    pub const fn min_ttl(mut self, min_ttl: Millis) -> Self {
        self.min_ttl = min_ttl;
        self
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> KvLimiter<S> {
        VersionedLimiter::new(self)
    }

    /// Returns the counts since the store was built. On Compute, that is since the start of this request.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { lost: self.lost.load(Ordering::Relaxed), refused: self.refused.load(Ordering::Relaxed) }
    }

    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Millis) -> Result<Swap, Error> {
        let ttl = ttl.max(self.min_ttl).as_secs_ceil();
        // The platform takes whole seconds in 32 bits, and treats more as zero.
        let ttl = Duration::from_secs(ttl.min(u32::MAX.into()));
        match self.store.insert(key, bytes, only, ttl)? {
            Inserted::Done => return Ok(Swap::Done),
            Inserted::Conflict => self.lost.fetch_add(1, Ordering::Relaxed),
            Inserted::Refused => self.refused.fetch_add(1, Ordering::Relaxed),
        };
        Ok(Swap::Conflict)
    }
}

impl<S: KeyValue> Versioned for Kv<S> {
    type Version = u64;

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        self.store.lookup(key)
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.insert(key, bytes, Only::New, ttl)
    }

    async fn update(&self, key: &str, bytes: &[u8], generation: u64, ttl: Millis) -> Result<Swap, Error> {
        self.insert(key, bytes, Only::Over(generation), ttl)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.store.delete(key)
    }
}

impl<S> fmt::Debug for Kv<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kv").field("min_ttl", &self.min_ttl).finish_non_exhaustive()
    }
}
