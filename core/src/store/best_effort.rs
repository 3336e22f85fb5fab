use alloc::vec::Vec;
use core::future::Future;

use super::{Record, stored_state};
use crate::limiter::{Capabilities, Check, Limiter, MaybeSend, MaybeSync, Refund};
use crate::{Decision, Error, Key, Millis, Policy, PolicyState, UnixMillis};

/// A store with get and put, where the last writer wins: soft, by a drift its adapter declares.
pub trait BestEffort: MaybeSend + MaybeSync {
    /// What the store can do.
    fn capabilities(&self) -> Capabilities;

    /// The value under `key`, if there is one.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn get(&self, key: &str) -> impl Future<Output = Result<Option<Vec<u8>>, Error>> + MaybeSend;

    /// Writes, whatever is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn put(&self, key: &str, bytes: &[u8], ttl: Millis) -> impl Future<Output = Result<(), Error>> + MaybeSend;

    /// Removes what is stored under `key`.
    ///
    /// # Errors
    /// Whatever keeps the store from answering.
    fn delete(&self, key: &str) -> impl Future<Output = Result<(), Error>> + MaybeSend;
}

/// A [`Limiter`] over a [`BestEffort`] store: one get, and one put for what was charged. A denial writes nothing.
#[derive(Clone, Debug)]
pub struct BestEffortLimiter<S> {
    store: S,
}

impl<S: BestEffort> BestEffortLimiter<S> {
    /// A limiter over `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }

    /// The store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    async fn transact<T: MaybeSend>(
        &self,
        policy: &Policy,
        key: &Key,
        now: UnixMillis,
        change: impl FnOnce(&mut PolicyState) -> T + MaybeSend,
    ) -> Result<T, Error> {
        let key = key.storage_key(policy);
        let before = stored_state(policy, self.store.get(&key).await?.as_deref())?;
        let mut state = before.clone();
        let answer = change(&mut state);
        if state != before {
            let Record { bytes, ttl } = Record::of(policy, &state, now);
            self.store.put(&key, &bytes, ttl).await?;
        }
        Ok(answer)
    }
}

impl<S: BestEffort> Limiter for BestEffortLimiter<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.capabilities().supports(&check)?;
        let Check { policy, key, cost, now, .. } = check;
        self.transact(policy, key, now, |state| policy.decide(state, now, cost)).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.peek, "peek")?;
        capabilities.supports(&check)?;
        let Check { policy, key, cost, now, .. } = check;
        self.transact(policy, key, now, |state| policy.peek(state, now, cost)).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.refund, "refund")?;
        let Refund { policy, key, cost, charged_at, now } = refund;
        self.transact(policy, key, now, |state| policy.refund(state, charged_at, now, cost)).await
    }

    async fn reset(&self, policy: &Policy, key: &Key) -> Result<(), Error> {
        let capabilities = self.capabilities();
        capabilities.require(capabilities.reset, "reset")?;
        self.store.delete(&key.storage_key(policy)).await
    }
}
