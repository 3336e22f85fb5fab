//! The stores that the limiters work on.

use std::future::Future;

use tidegate_core::store::Swap;
use tidegate_core::{Error, MaybeSend, MaybeSync};

/// A key-value store. In a Spin app it is one of the host's two interfaces, in a test a stand-in.
pub trait Bucket: MaybeSend + MaybeSync {
    /// Returns the value under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Writes `value` under `key`, unconditionally.
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

/// A [`Bucket`] with the atomics of `wasi:keyvalue`, as Spin's hosts implement them:
///
/// - A swap compares only if the read before it found a value. If there was none, the swap overwrites.
/// - Incrementing a value that is not 8 bytes breaks the host's store for all requests. So nothing else may write to a
///   counter's key, and a counter must be read before it is first incremented.
pub trait Atomics: Bucket {
    /// What a swap is compared with.
    type Cas: MaybeSend + MaybeSync;

    /// Adds `delta` to the counter under `key`, which starts at zero, and returns the sum.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn increment(&self, key: &str, delta: i64) -> impl Future<Output = Result<i64, Error>> + MaybeSend;

    /// Returns the value under `key`, and a handle for a swap that compares with it. Only a read gives a handle, because
    /// a swap by a handle that has not read would overwrite.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn compare(&self, key: &str) -> impl Future<Output = Result<(Self::Cas, Option<Vec<u8>>), Error>> + MaybeSend;

    /// Writes `value` if the stored value is still the one that was read. If the read found none, it always writes.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn swap(&self, cas: Self::Cas, value: &[u8]) -> impl Future<Output = Result<Swap, Error>> + MaybeSend;
}
