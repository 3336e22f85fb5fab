use std::sync::Arc;

use futures_util::FutureExt as _;
use tidegate_conformance::operation::Operation as Cost;
use tidegate_core::{Accuracy, Capabilities, Error, Limiter, MemoryLimiter, Operation, Reply, UnixMillis};

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
        self.environment.count(Cost::ScriptCall, 1);
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
        Capabilities::EXACT.grant(true).accuracy(self.accuracy)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        let reply = self.call(|own| self.store.apply(operation.with_now(self.time(operation.now(), own)))).await?;
        if let (Operation::Check(_), Reply::Decided(decision)) = (operation, &reply) {
            // The script, `TIME` and `GET`, and `SET` if it admits.
            self.environment.count(Cost::RedisCommand, 3 + u64::from(decision.is_allowed()));
        }
        Ok(reply)
    }
}
