//! The limiter: performs the reads and writes that the isolate asks for.

use std::fmt;

use tidegate_core::store::BestEffort;
use tidegate_core::{
    Accuracy, Capabilities, Check, Dimensions, Drift, Error, Limiter, Millis, Operation, Reply, UnixMillis,
};

use crate::kv::isolate::Isolate;

/// How far isolates together may exceed a limit. Each isolate counts what it has admitted, so each stays within the limit.
///
/// The ceiling holds for every key, however many keys there are. The floor holds for the keys that an isolate holds: no key is
/// denied what the true count of all isolates admits, as long as their clocks agree. Keys that an isolate has forgotten share a
/// count with their group; see [Capacity](crate::kv#capacity).
pub const DRIFT: Drift = Drift::PER_LOCATION;

/// What isolates support that share their counts through Workers KV.
pub const CAPABILITIES: Capabilities = Capabilities::EXACT
    .accuracy(Accuracy::Approximate(DRIFT))
    .algorithms(&["fixed_window", "sliding_window", "token_bucket"])
    .dimensions(Dimensions::One)
    .charge_denied(false)
    .refund(false)
    .reset(false)
    .block(false)
    .idempotency(false);

/// A limiter that counts in an [`Isolate`] and shares its counts through Workers KV, or through any other [`BestEffort`] store.
///
/// Create a limiter for each request, from the isolate's memory and the request's binding. [Flush](Self::flush) it after the
/// response.
///
/// ```
/// use tidegate_cloudflare::kv::{Config, Isolate, KvLimiter};
/// use tidegate_cloudflare::{Check, Error, LimiterExt, UnixMillis};
/// use tidegate_core::store::BestEffort;
/// async fn guard(isolate: &Isolate, store: impl BestEffort, check: Check<'_>) -> Result<bool, Error> {
///     let limiter = KvLimiter::new(isolate, store);
///     let decision = limiter.check(check).await?;
///     limiter.flush(check.now).await; // In a Worker: after the response.
///     Ok(decision.is_allowed())
/// }
/// ```
#[derive(Clone)]
pub struct KvLimiter<'a, S> {
    isolate: &'a Isolate,
    store: S,
}

impl<'a, S: BestEffort> KvLimiter<'a, S> {
    /// Creates a limiter that counts in `isolate` and shares its counts through `store`.
    pub const fn new(isolate: &'a Isolate, store: S) -> Self {
        Self { isolate, store }
    }

    /// Returns the isolate's memory.
    pub const fn isolate(&self) -> &'a Isolate {
        self.isolate
    }

    /// Writes at most eight keys that are due. Call it after the response. A failed write is counted in
    /// [`Stats`](crate::kv::Stats) and retried later; it is not an error.
    ///
    /// Returns how long to wait before the next flush if this caller should do it. A key that was written less than a second
    /// ago has to wait, and there may be no further request that would flush it.
    pub async fn flush(&self, now: UnixMillis) -> Option<Millis> {
        for put in self.isolate.plan_writes(now) {
            let answer = self.store.put(&put.value.name(&put.key), &put.bytes, put.ttl).await;
            self.isolate.wrote(&put.key, &answer);
        }
        self.isolate.appoint(now)
    }

    /// Reads the key if the isolate's knowledge of it is too old, and returns its storage key. If the store does not answer, the
    /// isolate decides by its own counts, and the decision's origin is `Fallback`.
    async fn refreshed(&self, check: &Check<'_>) -> Result<String, Error> {
        let key = check.keys.single(check.policy)?.storage_key(check.policy);
        if let Some(value) = self.isolate.plan(check, &key)? {
            let answer = self.store.get(&value.name(&key)).await;
            self.isolate.learn(check, &key, value, answer);
        }
        Ok(key)
    }
}

impl<S: BestEffort> Limiter for KvLimiter<'_, S> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// Reads at most once. [`KvLimiter::flush`] writes. A refund is unsupported, because another isolate may have charged the request,
    /// and so is a reset, because other isolates would write their counts again.
    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&CAPABILITIES)?;
        let (Operation::Check(check) | Operation::Peek(check)) = operation else { return Err(operation.unsupported()) };
        let key = self.refreshed(&check).await?;
        let decided = match operation {
            Operation::Peek(_) => self.isolate.peek(&check, &key),
            _ => self.isolate.decide(&check, &key),
        };
        decided.map(Reply::from)
    }
}

impl<S> fmt::Debug for KvLimiter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvLimiter").field("isolate", self.isolate).finish_non_exhaustive()
    }
}
