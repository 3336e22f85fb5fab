//! A store on compare-and-swap.

use tidegate_core::store::{Swap, Versioned, VersionedLimiter, VersionedValue};
use tidegate_core::{Capabilities, Dimensions, Error, Millis};

use crate::ballot::{self, EMPTY, Row};
use crate::bucket::Atomics;
use crate::error;

/// The capabilities of [`SpinAtomics`]. A decision takes a read, and a swap if the request is admitted. A key's first
/// request takes nine operations.
pub const CAPABILITIES: Capabilities =
    Capabilities::EXACT.dimensions(Dimensions::One).idempotency(false).round_trips(2);

/// A limiter on compare-and-swap.
pub type SpinAtomicsLimiter<B> = VersionedLimiter<SpinAtomics<B>>;

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
        CAPABILITIES
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
