//! The stores: get and put, and compare-and-swap.

use tidegate_core::store::{BestEffort, BestEffortLimiter, Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Drift, Error, Millis};

use crate::ballot::{self, EMPTY, Row};
use crate::bucket::{Atomics, Bucket};
use crate::error;

/// What [`SpinKv`] can do. A decision is a get, and a set if it is admitted.
pub const CAPABILITIES_KV: Capabilities = Capabilities {
    accuracy: Accuracy::Approximate(Drift::LAST_WRITER_WINS),
    idempotency: false,
    round_trips: 2,
    ..Capabilities::EXACT
};

/// What [`SpinAtomics`] can do. A decision is a read, and a swap if it is admitted; a key's first takes nine operations.
pub const CAPABILITIES_ATOMICS: Capabilities =
    Capabilities { idempotency: false, round_trips: 2, ..Capabilities::EXACT };

/// A limiter by get and put.
pub type SpinKvLimiter<B> = BestEffortLimiter<SpinKv<B>>;

/// A limiter by compare-and-swap.
pub type SpinAtomicsLimiter<B> = VersionedLimiter<SpinAtomics<B>>;

/// A store by get and put: approximate, see [`Drift::LAST_WRITER_WINS`]. A denial writes nothing; a client has one row.
#[derive(Clone, Debug)]
pub struct SpinKv<B>(B);

impl<B: Bucket> SpinKv<B> {
    /// A store over `bucket`.
    pub const fn new(bucket: B) -> Self {
        Self(bucket)
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> SpinKvLimiter<B> {
        BestEffortLimiter::best_effort(self)
    }
}

impl<B: Bucket> BestEffort for SpinKv<B> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES_KV
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.0.get(key).await
    }

    async fn put(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<(), Error> {
        self.0.set(key, bytes).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.0.delete(key).await
    }
}

/// A store by compare-and-swap: exact, for every algorithm. A client has two rows, its state and a ballot that says
/// which row that is.
#[derive(Clone, Debug)]
pub struct SpinAtomics<B>(B);

impl<B: Atomics> SpinAtomics<B> {
    /// Attempts of one decision: on a busy machine fifty at once need a few.
    const ATTEMPTS: u32 = 64;

    /// A store over `bucket`.
    pub const fn new(bucket: B) -> Self {
        Self(bucket)
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> SpinAtomicsLimiter<B> {
        VersionedLimiter::new(self).attempts(Self::ATTEMPTS)
    }

    /// The state in a row, if it holds one.
    async fn state(&self, row: &str) -> Result<Option<VersionedValue<B::Cas>>, Error> {
        let (version, value) = self.0.compare(row).await?;
        let state = value.filter(|bytes| !bytes.is_empty());
        Ok(state.map(|bytes| VersionedValue { bytes, version }))
    }
}

impl<B: Atomics> Versioned for SpinAtomics<B> {
    type Version = B::Cas;

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES_ATOMICS
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<B::Cas>>, Error> {
        if let Some(found) = self.state(&Row::FIRST.name(key)).await? {
            return Ok(Some(found));
        }
        match ballot::elected(&self.0, key).await? {
            Some(row) if row != Row::FIRST => self.state(&row.name(key)).await,
            _ => Ok(None),
        }
    }

    async fn create(&self, key: &str, bytes: &[u8], _ttl: Millis) -> Result<Swap, Error> {
        let row = ballot::elect(&self.0, key).await?.name(key);
        match self.0.compare(&row).await? {
            (cas, Some(found)) if found.is_empty() => self.0.swap(cas, bytes).await,
            (_, Some(_)) => Ok(Swap::Conflict),
            (_, None) => Err(error::row_gone(&row, &ballot::name(key))),
        }
    }

    async fn update(&self, _: &str, bytes: &[u8], version: B::Cas, _ttl: Millis) -> Result<Swap, Error> {
        self.0.swap(version, bytes).await
    }

    /// Empties the row: were it removed, the next swap would compare with nothing.
    async fn delete(&self, key: &str) -> Result<(), Error> {
        let row = ballot::elected(&self.0, key).await?.unwrap_or(Row::FIRST).name(key);
        match self.0.get(&row).await? {
            Some(_) => self.0.set(&row, EMPTY).await,
            None => Ok(()),
        }
    }
}
