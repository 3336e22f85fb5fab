use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use tidegate_conformance::operation::Operation;
use tidegate_core::store::{Swap, Versioned, VersionedValue};
use tidegate_core::{Capabilities, Error, ErrorKind, Millis};
use tidegate_fastly::kv::{Inserted, KeyValue, Only};
use tidegate_spin::{Atomics, Bucket};

use super::kv::Values;
use super::late;
use crate::simulate::environment::{Environment, locked};

/// A key-value store with a replica at each place. A write is seen at its place at once, and at the others later. There, the
/// last write wins.
#[derive(Clone)]
pub(in crate::simulate) struct Replicas {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) replication_us: u64,
    pub(in crate::simulate) all: Arc<Mutex<HashMap<String, Values>>>,
}

/// Values without a lifetime of their own.
const FOREVER: Millis = Millis::new(u64::MAX);

impl Replicas {
    fn seen(&self, key: &str, now: u64) -> Option<VersionedValue<u64>> {
        let all = locked(&self.all);
        let write = all.get(key)?.seen(self.place, now, self.replication_us)?;
        Some(VersionedValue { bytes: write.value.clone()?, version: write.generation })
    }

    fn write(&self, key: &str, value: Option<&[u8]>, ttl: Millis, now: u64) {
        let value = value.map(<[u8]>::to_vec);
        locked(&self.all).entry(key.to_owned()).or_default().write(now, self.place, value, ttl, self.replication_us);
    }

    /// Whether the value under `key` has this version, or whether it does not matter.
    fn matches(&self, key: &str, version: Option<u64>, now: u64) -> bool {
        !self.environment.assumed.swaps_compare || self.seen(key, now).map(|seen| seen.version) == version
    }

    /// An operation at the replica of the place.
    async fn ask<T>(&self, operation: Operation, serve: impl FnOnce(u64) -> T) -> Option<T> {
        self.environment.count(operation, 1);
        let deadline_us = self.environment.assumed.kv_deadline_us;
        self.environment.ask(self.place, self.place, deadline_us, |now| (serve(now), now)).await
    }

    async fn spin<T>(&self, serve: impl FnOnce(u64) -> T) -> Result<T, Error> {
        let failed = || Error::new(ErrorKind::Unavailable, "spin key-value: the store failed");
        self.ask(Operation::SpinOperation, serve).await.ok_or_else(failed)
    }
}

impl Bucket for Replicas {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.spin(|now| self.seen(key, now).map(|seen| seen.bytes)).await
    }

    async fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.spin(|now| self.write(key, Some(value), FOREVER, now)).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.spin(|now| self.write(key, None, FOREVER, now)).await
    }
}

/// As on Spin's SQLite store.
impl Atomics for Replicas {
    type Cas = (String, Option<u64>);

    async fn increment(&self, key: &str, delta: i64) -> Result<i64, Error> {
        let add = |now| {
            let found = self.seen(key, now).and_then(|seen| seen.bytes.try_into().ok()).map(i64::from_le_bytes);
            let sum = found.unwrap_or_default().saturating_add(delta);
            self.write(key, Some(&sum.to_le_bytes()), FOREVER, now);
            sum
        };
        self.spin(add).await
    }

    async fn compare(&self, key: &str) -> Result<(Self::Cas, Option<Vec<u8>>), Error> {
        let found = self.spin(|now| self.seen(key, now)).await?;
        let version = found.as_ref().map(|found| found.version);
        Ok(((key.to_owned(), version), found.map(|found| found.bytes)))
    }

    async fn swap(&self, (key, version): Self::Cas, value: &[u8]) -> Result<Swap, Error> {
        let swap = |now| {
            // It compares only if the read found a value.
            if version.is_some() && !self.matches(&key, version, now) {
                return Swap::Conflict;
            }
            self.write(&key, Some(value), FOREVER, now);
            Swap::Done
        };
        self.spin(swap).await
    }
}

/// Fastly's host functions block, so they take no time here: see [`Timed`].
impl KeyValue for Replicas {
    fn lookup(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        Ok(self.seen(key, self.environment.world.now_us()))
    }

    fn insert(&self, key: &str, bytes: &[u8], only: Only, ttl: Duration) -> Result<Inserted, Error> {
        let now = self.environment.world.now_us();
        let expected = match only {
            Only::New => None,
            Only::Over(generation) => Some(generation),
        };
        if !self.matches(key, expected, now) {
            return Ok(Inserted::Conflict);
        }
        self.write(key, Some(bytes), Millis::from_secs(ttl.as_secs()), now);
        Ok(Inserted::Done)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        self.write(key, None, FOREVER, self.environment.world.now_us());
        Ok(())
    }
}

/// A store of which each operation takes the time of a message to the replica and back.
pub(in crate::simulate) struct Timed<S> {
    pub(in crate::simulate) replicas: Replicas,
    pub(in crate::simulate) store: S,
}

impl<S: Versioned> Timed<S> {
    async fn ask<T>(&self, operation: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let answered = self.replicas.ask(Operation::FastlyOperation, |_| operation.now_or_never()).await;
        answered.flatten().unwrap_or_else(|| Err(late("kv store")))
    }
}

impl<S: Versioned> Versioned for Timed<S> {
    type Version = S::Version;

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<S::Version>>, Error> {
        self.ask(self.store.read(key)).await
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        self.ask(self.store.create(key, bytes, ttl)).await
    }

    async fn update(&self, key: &str, bytes: &[u8], version: S::Version, ttl: Millis) -> Result<Swap, Error> {
        self.ask(self.store.update(key, bytes, version, ttl)).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.ask(self.store.delete(key)).await
    }
}
