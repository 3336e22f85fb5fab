//! The stores: one on get and put, one on compare-and-swap.

use tidegate_core::store::{BestEffort, BestEffortLimiter, Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Accuracy, Capabilities, Dimensions, Drift, Error, Millis};

use crate::ballot::{self, EMPTY, Row};
use crate::bucket::{Atomics, Bucket};
use crate::error;

/// The capabilities of [`SpinKv`]. A decision takes a get, and a set if the request is admitted.
pub const CAPABILITIES_KV: Capabilities = CAPABILITIES_ATOMICS
    .accuracy(Accuracy::Approximate(Drift::LAST_WRITER_WINS))
    .algorithms(Capabilities::COUNTING)
    .block(false);

/// The capabilities of [`SpinAtomics`]. A decision takes a read, and a swap if the request is admitted. A key's first
/// request takes nine operations.
pub const CAPABILITIES_ATOMICS: Capabilities =
    Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(2);

/// A limiter on get and put.
pub type SpinKvLimiter<B> = BestEffortLimiter<SpinKv<B>>;

/// A limiter on compare-and-swap.
pub type SpinAtomicsLimiter<B> = VersionedLimiter<SpinAtomics<B>>;

/// A store on get and put. It is approximate, see [`Drift::LAST_WRITER_WINS`]. A denial writes nothing. A client has one
/// row.
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

/// A store on compare-and-swap: exact, for every algorithm. A client has two rows: its state, and a ballot that says which
/// row holds the state.
///
/// It needs a store with a reliable compare-and-swap, such as Spin's SQLite store. On Spin's Redis store every check fails
/// as [`Invalid`](tidegate_core::ErrorKind::Invalid).
#[derive(Clone, Debug)]
pub struct SpinAtomics<B>(B);

impl<B: Atomics> SpinAtomics<B> {
    /// The most attempts of one decision. Fifty concurrent requests on a busy machine need a few.
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

    /// Returns the state in a row, if there is one.
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

    /// Empties the row. If it were removed, the next swap would not compare.
    async fn delete(&self, key: &str) -> Result<(), Error> {
        let row = ballot::elected(&self.0, key).await?.unwrap_or(Row::FIRST).name(key);
        match self.0.get(&row).await? {
            Some(_) => self.0.set(&row, EMPTY).await,
            None => Ok(()),
        }
    }
}
