//! Stores that count what they are asked, and fail on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_core::store::{Swap, Swapped, Versioned, VersionedValue};
use tidegate_core::{Capabilities, Error, ErrorKind, Limiter, MemoryLimiter, Millis, Operation, Reply, limiter_fn};

use crate::turn;

/// What the failures of these stores hold. It must reach neither a client nor a log.
pub const SECRET: &str = "redis://user:hunter2@10.0.0.7";

/// What the failures of these stores advise.
pub const ADVICE: &str = "open the port of the store";

fn failure(kind: ErrorKind) -> Error {
    Error::new(kind, format!("cannot reach {SECRET}")).with_source(SECRET).with_advice(ADVICE)
}

/// A limiter that answers every call with an error of this kind.
pub fn failing(kind: ErrorKind) -> impl Limiter {
    limiter_fn(Capabilities::EXACT, move |_| Err(failure(kind)))
}

/// A memory that counts its checks, and fails on demand. Its clones share it.
#[derive(Clone, Debug, Default)]
pub struct FlakyStore(Arc<State>);

#[derive(Debug, Default)]
struct State {
    memory: MemoryLimiter,
    checks: AtomicU32,
    fails: Mutex<Fails>,
}

#[derive(Clone, Copy, Debug, Default)]
enum Fails {
    #[default]
    Never,
    Before(ErrorKind),
    After(ErrorKind),
}

impl FlakyStore {
    /// What it has counted.
    #[must_use]
    pub fn memory(&self) -> &MemoryLimiter {
        &self.0.memory
    }

    /// Fails what it is asked from now on, and counts none of it. `None` ends this.
    pub fn fail(&self, kind: impl Into<Option<ErrorKind>>) {
        *self.0.fails.lock().unwrap() = kind.into().map_or(Fails::Never, Fails::Before);
    }

    /// Does what it is asked from now on, and fails to answer.
    pub fn lose_answers(&self, kind: ErrorKind) {
        *self.0.fails.lock().unwrap() = Fails::After(kind);
    }

    /// How often it was asked to check, those that failed included, since this was asked last.
    #[must_use]
    pub fn take_checks(&self) -> u32 {
        self.0.checks.swap(0, Ordering::Relaxed)
    }
}

impl Limiter for FlakyStore {
    fn capabilities(&self) -> Capabilities {
        self.0.memory.capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Check(_) = operation {
            self.0.checks.fetch_add(1, Ordering::Relaxed);
        }
        let fails = *self.0.fails.lock().unwrap();
        match fails {
            Fails::Never => self.0.memory.apply(operation).await,
            Fails::Before(kind) => Err(failure(kind)),
            Fails::After(kind) => self.0.memory.apply(operation).await.and(Err(failure(kind))),
        }
    }
}

/// A limiter that declares less than it can, and does no more than it declares.
#[derive(Clone, Debug)]
pub struct Declaring<L>(pub Capabilities, pub L);

impl<L: Limiter> Limiter for Declaring<L> {
    fn capabilities(&self) -> Capabilities {
        self.0
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.0)?;
        self.1.apply(operation).await
    }
}

/// A store of bytes with a version. Each operation lets others run first. It counts the writes, and can make them conflict.
#[derive(Debug, Default)]
pub struct Table {
    /// The rows, each with its version.
    pub rows: Mutex<HashMap<String, (Vec<u8>, u64)>>,
    /// How many writes were done.
    pub writes: AtomicU32,
    /// How many writes lose to a concurrent writer.
    pub rivals: AtomicU32,
    /// How many calls were made.
    pub calls: AtomicU32,
    /// Whether a swap tells what it found, or under which version it wrote.
    pub tells: bool,
}

impl Table {
    /// Writes a row if its version is the expected one.
    pub fn write(&self, key: &str, bytes: &[u8], expected: Option<u64>) -> Swap {
        let mut rows = self.rows.lock().unwrap();
        let current = rows.get(key).map(|row| row.1);
        let rival = self.rivals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if current != expected || rival.is_ok() {
            return Swap::Conflict;
        }
        // No version of a row comes again, also after it was deleted.
        let version = u64::from(self.writes.fetch_add(1, Ordering::Relaxed)) + 1;
        rows.insert(key.into(), (bytes.into(), version));
        Swap::Done
    }

    async fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        turn().await;
    }

    /// A row, with its version.
    #[must_use]
    pub fn row(&self, key: &str) -> Option<(Vec<u8>, u64)> {
        self.rows.lock().unwrap().get(key).cloned()
    }
}

impl Versioned for Table {
    type Version = u64;

    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.idempotency(false).round_trips(2)
    }

    async fn read(&self, key: &str) -> Result<Option<VersionedValue<u64>>, Error> {
        self.called().await;
        Ok(self.row(key).map(|(bytes, version)| VersionedValue { bytes, version }))
    }

    async fn create(&self, key: &str, bytes: &[u8], ttl: Millis) -> Result<Swap, Error> {
        assert!(ttl > Millis::ZERO);
        self.called().await;
        Ok(self.write(key, bytes, None))
    }

    async fn update(&self, key: &str, bytes: &[u8], version: u64, ttl: Millis) -> Result<Swap, Error> {
        assert!(ttl > Millis::ZERO);
        self.called().await;
        Ok(self.write(key, bytes, Some(version)))
    }

    async fn swap(&self, key: &str, bytes: &[u8], version: Option<u64>, ttl: Millis) -> Result<Swapped<u64>, Error> {
        assert!(ttl > Millis::ZERO);
        self.called().await;
        let swap = self.write(key, bytes, version);
        let found = self.row(key);
        Ok(match (swap, found) {
            (Swap::Done, Some((_, version))) if self.tells => Swapped::Done(Some(version)),
            (Swap::Done, _) => Swapped::Done(None),
            (Swap::Conflict, found) if self.tells => {
                Swapped::Lost(found.map(|(bytes, version)| VersionedValue { bytes, version }))
            }
            (Swap::Conflict, _) => Swapped::Conflict,
        })
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.rows.lock().unwrap().remove(key);
        Ok(())
    }
}
