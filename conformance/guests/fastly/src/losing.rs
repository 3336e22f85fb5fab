//! A store whose answers are lost.

use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_core::store::{Swap, Versioned, VersionedValue};
use tidegate_core::{Capabilities, Error, ErrorKind, Millis};

/// The field by which the suite's host asks for a lost answer, and by which the app says that it has lost one.
pub(crate) const FIELD: &str = "tidegate-lost";

/// Makes a write, and answers it with an error, as a store across a network may.
pub(crate) struct Losing<'a, S> {
    store: &'a S,
    has_lost: AtomicBool,
}

impl<'a, S> Losing<'a, S> {
    pub(crate) const fn new(store: &'a S) -> Self {
        Self { store, has_lost: AtomicBool::new(false) }
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }

    fn lost(&self, swap: Swap) -> Result<Swap, Error> {
        if swap == Swap::Conflict {
            return Ok(swap);
        }
        self.has_lost.store(true, Ordering::Relaxed);
        Err(Error::new(ErrorKind::Unavailable, "KV Store: the answer is lost"))
    }
}

impl<S: Versioned> Versioned for Losing<'_, S> {
    type Version = S::Version;

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<S::Version>>, Error> {
        self.store.read(key).await
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.lost(self.store.create(key, bytes, ttl).await?)
    }

    async fn update(&self, key: &str, bytes: &[u8], version: S::Version, ttl: Millis) -> Result<Swap, Error> {
        self.lost(self.store.update(key, bytes, version, ttl).await?)
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.store.delete(key).await
    }
}
