//! The platform's API, over the crate `fastly`.

use std::io::Read as _;
use std::time::Duration;

use fastly::KVStore;
use fastly::erl::{ERL, Penaltybox, RateCounter, RateWindow};
use fastly::kv_store::{InsertMode, KVStoreError};
use tidegate_core::store::VersionedValue;
use tidegate_core::{Error, Millis};

use crate::erl::{Erl, Rates, Window};
use crate::error;
use crate::kv::{Inserted, KeyValue, Kv, Only};

impl KeyValue for KVStore {
    fn lookup(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        match self.build_lookup().execute(key) {
            Ok(mut found) => {
                // `take_body_bytes` would panic if the value ended early.
                let mut bytes = Vec::new();
                let read = found.take_body().read_to_end(&mut bytes);
                read.map_err(|error| error::failed("KV Store: the value ended early", error))?;
                Ok(Some(VersionedValue { bytes, version: found.current_generation() }))
            }
            Err(KVStoreError::ItemNotFound) => Ok(None),
            Err(error) => Err(failed("KV Store: the read failed", error)),
        }
    }

    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Duration) -> Result<Inserted, Error> {
        let insert = self.build_insert().time_to_live(ttl);
        let insert = match only {
            Only::New => insert.mode(InsertMode::Add),
            Only::Over(generation) => insert.if_generation_match(generation),
        };
        match insert.execute(key, bytes) {
            Ok(()) => Ok(Inserted::Done),
            Err(KVStoreError::ItemPreconditionFailed) => Ok(Inserted::Conflict),
            Err(KVStoreError::TooManyRequests) => Ok(Inserted::Refused),
            Err(error) => Err(failed("KV Store: the write failed, and may have been charged", error)),
        }
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        match Self::delete(self, key) {
            Ok(()) | Err(KVStoreError::ItemNotFound) => Ok(()),
            Err(error) => Err(failed("KV Store: the delete failed", error)),
        }
    }
}

impl Kv<KVStore> {
    /// Opens the service's KV Store `name`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) if no such store is linked to the service.
    pub fn open(name: &str) -> Result<Self, Error> {
        match KVStore::open(name) {
            Ok(Some(store)) => Ok(Self::new(store)),
            Ok(None) | Err(KVStoreError::StoreNotFound(_)) => Err(error::not_linked(name)),
            Err(error) => Err(failed("KV Store: opening failed", error)),
        }
    }
}

/// An error of KV Store. A client can cause `TooManyRequests` by sending many requests, so that is not an outage.
fn failed(what: &str, error: KVStoreError) -> Error {
    match error {
        KVStoreError::TooManyRequests => error::busy(what),
        error => error::failed(what, error),
    }
}

impl Rates for ERL {
    fn check_rate(&self, entry: &str, per_second: u32, window: Window, penalty: Duration) -> Result<bool, Error> {
        let window = match window {
            Window::OneSecond => RateWindow::OneSec,
            Window::TenSeconds => RateWindow::TenSecs,
            Window::SixtySeconds => RateWindow::SixtySecs,
        };
        let blocked = Self::check_rate(self, entry, 1, window, per_second, penalty);
        blocked.map_err(|error| error::failed("Edge Rate Limiting did not answer, and may have counted", error))
    }
}

impl Erl<ERL> {
    /// Opens the rate counter and the penalty box with these names; see [`Erl::new`].
    ///
    /// # Errors
    /// See [`Erl::new`].
    pub fn open(
        rate_counter: &str,
        penalty_box: &str,
        limit: u64,
        window: Millis,
        penalty: Millis,
    ) -> Result<Self, Error> {
        let rates = ERL::open(RateCounter::open(rate_counter), Penaltybox::open(penalty_box));
        Self::new(rates, limit, window, penalty)
    }
}
