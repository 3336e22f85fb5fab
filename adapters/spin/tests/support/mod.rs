//! A model of Spin's store with its pitfalls, and a scheduler that runs requests in any interleaving.
#![allow(dead_code, reason = "each test uses a part of this module")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use tidegate_core::store::Swap;
use tidegate_core::{Error, ErrorKind};
use tidegate_spin::{Atomics, Bucket};
use tidegate_testing::turn;

/// The SQLite store of Spin 4. An operation is atomic and runs when the scheduler picks it.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) rows: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Reads, and writes.
    pub(crate) operations: Mutex<(u32, u32)>,
    pub(crate) poisoned: Mutex<bool>,
    /// Whether every swap fails with a conflict.
    pub(crate) always_lost: bool,
    /// Whether counters are stored as decimal digits, as in Spin's Redis store. There, incrementing a value that is not
    /// a number is an error and does not poison the store.
    pub(crate) decimal: bool,
}

impl Model {
    pub(crate) fn holding(rows: impl IntoIterator<Item = (String, Vec<u8>)>) -> Self {
        Self { rows: Mutex::new(rows.into_iter().collect()), ..Self::default() }
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.rows.lock().unwrap().keys().cloned().collect()
    }

    /// Whether an increment of a malformed counter has made the host's store unusable.
    pub(crate) fn is_poisoned(&self) -> bool {
        *self.poisoned.lock().unwrap()
    }

    /// The operations since the last call.
    pub(crate) fn operations(&self) -> (u32, u32) {
        std::mem::take(&mut *self.operations.lock().unwrap())
    }

    async fn operate<T>(
        &self,
        writes: bool,
        work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T,
    ) -> Result<T, Error> {
        turn().await;
        if self.is_poisoned() {
            return Err(Error::new(ErrorKind::Unavailable, "the host's store has ended"));
        }
        let mut operations = self.operations.lock().unwrap();
        *(if writes { &mut operations.1 } else { &mut operations.0 }) += 1;
        Ok(work(&mut self.rows.lock().unwrap()))
    }
}

impl Bucket for &Model {
    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.operate(false, |rows| rows.get(key).cloned()).await
    }

    async fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.operate(true, |rows| drop(rows.insert(key.into(), value.into()))).await
    }

    async fn delete(&self, key: &str) -> Result<(), Error> {
        self.operate(true, |rows| drop(rows.remove(key))).await
    }
}

impl Atomics for &Model {
    type Cas = (String, Option<Vec<u8>>);

    async fn increment(&self, key: &str, delta: i64) -> Result<i64, Error> {
        if self.decimal {
            return self.operate(true, |rows| add_decimal(rows.entry(key.into()).or_default(), delta)).await?;
        }
        let sum = self.operate(true, |rows| {
            let value = rows.entry(key.into()).or_insert_with(|| vec![0; 8]);
            let sum = i64::from_le_bytes(value.as_slice().try_into().ok()?).wrapping_add(delta);
            *value = sum.to_le_bytes().into();
            Some(sum)
        });
        match sum.await? {
            Some(sum) => Ok(sum),
            None => {
                *self.poisoned.lock().unwrap() = true;
                Err(Error::new(ErrorKind::Unavailable, "incorrect length"))
            }
        }
    }

    async fn compare(&self, key: &str) -> Result<(Self::Cas, Option<Vec<u8>>), Error> {
        let value = self.get(key).await?;
        Ok(((key.into(), value.clone()), value))
    }

    async fn swap(&self, (key, old): Self::Cas, value: &[u8]) -> Result<Swap, Error> {
        let lost = self.always_lost;
        self.operate(true, |rows| {
            // A swap of a key that was missing overwrites unconditionally.
            if lost || old.is_some() && rows.get(&key) != old.as_ref() {
                return Swap::Conflict;
            }
            rows.insert(key, value.into());
            Swap::Done
        })
        .await
    }
}

fn add_decimal(value: &mut Vec<u8>, delta: i64) -> Result<i64, Error> {
    let digits = if value.is_empty() { "0" } else { std::str::from_utf8(value).unwrap_or_default() };
    let refused = |_| Error::new(ErrorKind::Unavailable, "ERR value is not an integer or out of range");
    let sum = digits.parse::<i64>().map_err(refused)? + delta;
    *value = sum.to_string().into();
    Ok(sum)
}

/// Requests in flight.
pub(crate) type Tasks<'a, T> = Vec<Pin<Box<dyn Future<Output = T> + 'a>>>;

/// The next event, at one of the requests in flight.
pub(crate) enum Next {
    /// The request does its next operation.
    Goes(usize),
    /// The request's instance ends.
    Ends(usize),
}

/// Runs the requests in the order that `next` picks. `next` gets the number of requests in flight. Returns the answers
/// of the requests whose instance did not end.
pub(crate) fn take_turns<T>(tasks: Tasks<'_, T>, mut next: impl FnMut(usize) -> Next) -> Vec<T> {
    let mut tasks = tasks;
    let mut answers = Vec::new();
    // First, each request runs up to its first operation.
    tasks.retain_mut(|task| match poll(task) {
        Poll::Ready(answer) => {
            answers.push(answer);
            false
        }
        Poll::Pending => true,
    });
    while !tasks.is_empty() {
        match next(tasks.len()) {
            Next::Ends(place) => drop(tasks.swap_remove(place)),
            Next::Goes(place) => {
                if let Poll::Ready(answer) = poll(&mut tasks[place]) {
                    answers.push(answer);
                    drop(tasks.swap_remove(place));
                }
            }
        }
    }
    answers
}

fn poll<T>(task: &mut Pin<Box<dyn Future<Output = T> + '_>>) -> Poll<T> {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Pseudorandom numbers, reproducible from the seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}
