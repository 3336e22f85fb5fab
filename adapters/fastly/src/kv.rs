//! KV Store: a read and a conditional write for each decision.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Drift, Error, Floor, MaybeSend, MaybeSync, Millis};

/// A limiter by KV Store.
pub type KvLimiter<S> = VersionedLimiter<Kv<S>>;

/// How far PoPs together may pass a limit. Within one, a write is made only over what was read, so nothing is admitted
/// that was not counted; between them the store is eventual, and no more is taken for granted than that each counts for
/// itself.
///
/// A view that has not caught up shows less than was counted, never more, so nobody is denied early: nothing is held
/// back.
pub const DRIFT: Drift = Drift {
    formula: "limit x locations",
    ceiling: |load| load.limit.saturating_mul(load.locations.max(1)),
    floor: Floor::NOTHING_HELD,
};

/// What KV Store can do.
pub const CAPABILITIES: Capabilities =
    Capabilities { accuracy: Accuracy::Approximate(DRIFT), idempotency: false, round_trips: 2, ..Capabilities::EXACT };

/// What a decision takes of KV Store: in an app `fastly::KVStore`, in a test whatever stands in for it.
///
/// Calls block, as the platform's do.
pub trait KeyValue: MaybeSend + MaybeSync {
    /// The value under `key` and its generation, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn lookup(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error>;

    /// Writes, on one condition.
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

/// What must be so for a write to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// Nothing is stored: the platform's mode `Add`.
    New,
    /// What is stored is of this generation: the platform's `if_generation_match`.
    Over(u64),
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It is made.
    Done,
    /// Its condition did not hold.
    Conflict,
    /// The store takes no more writes for now: too many requests. Nothing was written.
    Refused,
}

/// KV Store, as a [`Versioned`] store.
///
/// A decision reads, decides, and writes on the condition that what it read still stands. Where it does not, or where
/// the store refuses the write, it tries again: up to [`VersionedLimiter::attempts`] times. What was never written was
/// never admitted: running out of attempts is [`Contended`](tidegate_core::ErrorKind::Contended). A denial writes
/// nothing.
///
/// # Errors
/// [`Contended`](tidegate_core::ErrorKind::Contended) on a key that is hammered; what to do then is the caller's
/// choice, and denying is a good one. [`Unavailable`](tidegate_core::ErrorKind::Unavailable) where KV Store fails.
/// [`Corrupt`](tidegate_core::ErrorKind::Corrupt) where a value is none that Tidegate wrote: it is left as it is, and a
/// reset removes it.
pub struct Kv<S> {
    store: S,
    min_ttl: Millis,
    lost: AtomicU64,
    refused: AtomicU64,
}

/// What a [`Kv`] met; see [`Kv::stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Writes that lost to another's, each of which was tried again.
    pub lost: u64,
    /// Writes that the store refused for there being too many, each of which was tried again.
    pub refused: u64,
}

impl<S: KeyValue> Kv<S> {
    /// A store over `store`.
    pub const fn new(store: S) -> Self {
        Self { store, min_ttl: Millis::new(0), lost: AtomicU64::new(0), refused: AtomicU64::new(0) }
    }

    /// The same store, in which a state lives at least this long by the platform's clock: for tests, whose own clock
    /// may stand still.
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

    /// What it met since it was made: on Compute, in this request.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats { lost: self.lost.load(Ordering::Relaxed), refused: self.refused.load(Ordering::Relaxed) }
    }

    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Millis) -> Result<Swap, Error> {
        let ttl = ttl.max(self.min_ttl).as_secs_ceil();
        // The platform takes whole seconds in 32 bits, and makes no seconds of more.
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
