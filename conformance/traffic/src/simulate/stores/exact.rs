use std::sync::Arc;

use futures_util::FutureExt as _;
use tidegate_conformance::operation::Operation;
use tidegate_core::{
    Accuracy, Block, Capabilities, Check, Decision, Error, Keys, Limiter, MemoryLimiter, Policy, Refund, Settle,
    UnixMillis,
};

use super::late;
use crate::simulate::environment::Environment;

/// A store at one place whose script decides as the core does, such as Redis or Upstash.
#[derive(Clone)]
pub(in crate::simulate) struct Exact {
    pub(in crate::simulate) environment: Environment,
    pub(in crate::simulate) place: usize,
    pub(in crate::simulate) home: usize,
    /// Of all places together.
    pub(in crate::simulate) accuracy: Accuracy,
    pub(in crate::simulate) store: Arc<MemoryLimiter>,
    /// Whether it decides by its own clock, and not by the caller's.
    pub(in crate::simulate) own_clock: bool,
}

impl Exact {
    /// A call of the script, which gets the time of its arrival.
    async fn call<T, F: Future<Output = Result<T, Error>>>(
        &self,
        script: impl FnOnce(UnixMillis) -> F,
    ) -> Result<T, Error> {
        self.environment.count(Operation::ScriptCall, 1);
        let serve = |now| {
            let answer = script(UnixMillis::new(now / 1_000)).now_or_never();
            (answer.unwrap_or_else(|| Err(late("redis"))), now)
        };
        let deadline_us = self.environment.assumed.redis_deadline_us;
        let answered = self.environment.ask(self.place, self.home, deadline_us, serve).await;
        answered.unwrap_or_else(|| Err(late("redis")))
    }

    const fn time(&self, callers: UnixMillis, own: UnixMillis) -> UnixMillis {
        if self.own_clock { own } else { callers }
    }
}

impl Limiter for Exact {
    fn capabilities(&self) -> Capabilities {
        Capabilities::EXACT.accuracy(self.accuracy)
    }

    async fn check(&self, mut check: Check<'_>) -> Result<Decision, Error> {
        let decision = self
            .call(|own| {
                check.now = self.time(check.now, own);
                self.store.check(check)
            })
            .await?;
        // The script, `TIME` and `GET`, and `SET` if it admits.
        self.environment.count(Operation::RedisCommand, 3 + u64::from(decision.is_allowed()));
        Ok(decision)
    }

    async fn peek(&self, mut check: Check<'_>) -> Result<Decision, Error> {
        self.call(|own| {
            check.now = self.time(check.now, own);
            self.store.peek(check)
        })
        .await
    }

    async fn refund(&self, mut refund: Refund<'_>) -> Result<(), Error> {
        self.call(|own| {
            refund.now = self.time(refund.now, own);
            self.store.refund(refund)
        })
        .await
    }

    async fn block(&self, mut block: Block<'_>) -> Result<(), Error> {
        self.call(|own| {
            block.now = self.time(block.now, own);
            self.store.block(block)
        })
        .await
    }

    async fn settle(&self, mut settle: Settle<'_>) -> Result<Decision, Error> {
        self.call(|own| {
            settle.now = self.time(settle.now, own);
            self.store.settle(settle)
        })
        .await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.call(|_| self.store.reset(policy, keys)).await
    }
}
