//! What the limiters ask of a store.

use std::future::Future;

use tidegate_core::store::Swap;
use tidegate_core::{Error, MaybeSend, MaybeSync};

/// A key-value store: in a Spin app one of its two interfaces, in a test whatever stands in for them.
pub trait Bucket: MaybeSend + MaybeSync {
    /// The value under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Writes, whatever is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn set(&self, key: &str, value: &[u8]) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Removes what is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// A [`Bucket`] with `wasi:keyvalue` atomics, as Spin's hosts have them:
///
/// - A swap compares only where the value that was read is a value. From nothing it overwrites.
/// - An increment of a value that is not 8 bytes ends the host's store for everyone. So a counter's key is never set, and is
///   looked at before it is first counted.
pub trait Atomics: Bucket {
    /// What a swap is compared with.
    type Cas: MaybeSend + MaybeSync;

    /// Adds to the counter under `key`, from zero where there is none: the sum.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn increment(&self, key: &str, delta: i64) -> impl Future<Output = Result<i64, Error>> + MaybeSend;

    /// The value under `key`, and what a swap is compared with. There is no handle that has not read: a swap by such a one would
    /// overwrite.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn compare(&self, key: &str) -> impl Future<Output = Result<(Self::Cas, Option<Vec<u8>>), Error>> + MaybeSend;

    /// Writes where the value is the one that was read, if that was a value.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn swap(&self, cas: Self::Cas, value: &[u8]) -> impl Future<Output = Result<Swap, Error>> + MaybeSend;
}
