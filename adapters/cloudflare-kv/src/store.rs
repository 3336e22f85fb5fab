//! The limiter: which operations of the store a decision takes.

use std::fmt;

use tidegate_core::store::BestEffort;
use tidegate_core::{
    Accuracy, Capabilities, Check, Decision, Drift, Error, ErrorKind, Floor, Key, Limiter, Millis, Policy, Refund,
    UnixMillis,
};

use crate::isolate::Isolate;

/// How far isolates together may pass a limit: each counts what it admitted itself, so each stays within it.
///
/// None is denied what the true count of them all admits, as long as their clocks agree: nothing is held back.
pub const DRIFT: Drift = Drift {
    formula: "limit x locations",
    ceiling: |load| load.limit.saturating_mul(load.locations.max(1)),
    floor: Floor::NOTHING_HELD,
};

/// What Workers KV can do with isolates that count.
pub const CAPABILITIES: Capabilities = Capabilities {
    accuracy: Accuracy::Approximate(DRIFT),
    algorithms: &["fixed_window", "sliding_window", "token_bucket"],
    max_quotas: Policy::MAX_QUOTAS,
    costs: true,
    charge_denied: false,
    peek: true,
    refund: false,
    reset: false,
    idempotency: false,
    round_trips: 1,
};

/// A limiter of one isolate over Workers KV, or over any other store that gets and puts.
///
/// Make one a request of the isolate's memory and the request's binding, and after the response [`flush`](Self::flush)
/// it.
///
/// ```
/// use tidegate_cloudflare_kv::{Config, Isolate, KvLimiter};
/// use tidegate_core::store::BestEffort;
/// use tidegate_core::{Check, Error, Limiter, UnixMillis};
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
    /// A limiter that counts in `isolate` and shares what it counted through `store`.
    pub const fn new(isolate: &'a Isolate, store: S) -> Self {
        Self { isolate, store }
    }

    /// The isolate's memory.
    pub const fn isolate(&self) -> &'a Isolate {
        self.isolate
    }

    /// Writes what is due, at most eight keys: for after the response. A write that the store refuses or loses is counted in
    /// [`Stats`](crate::Stats), tried again later, and never an error.
    ///
    /// Answers with how long to wait before the next flush is worth it, to the one caller that should: what was counted
    /// within a second of a key's last write has to wait, and perhaps no further request comes.
    pub async fn flush(&self, now: UnixMillis) -> Option<Millis> {
        for put in self.isolate.plan_writes(now) {
            let answer = self.store.put(&put.value.name(&put.key), &put.bytes, put.ttl).await;
            self.isolate.wrote(&put.key, &answer);
        }
        self.isolate.appoint(now)
    }

    /// The name of the key, having read it if what is known of it is too old. A store that does not answer is no error:
    /// the isolate goes by its own counts, and the decision's origin says so.
    async fn refreshed(&self, check: &Check<'_>) -> Result<String, Error> {
        self.capabilities().supports(check)?;
        let key = check.key.storage_key(check.policy);
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

    /// At most one read. No write: that is [`KvLimiter::flush`].
    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.isolate.decide(&check, &self.refreshed(&check).await?)
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.isolate.peek(&check, &self.refreshed(&check).await?)
    }

    async fn refund(&self, _: Refund<'_>) -> Result<(), Error> {
        Err(unsupported("refund: what was charged may be another isolate's"))
    }

    async fn reset(&self, _: &Policy, _: &Key) -> Result<(), Error> {
        Err(unsupported("reset: the isolates that counted would write their counts again"))
    }
}

impl<S> fmt::Debug for KvLimiter<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KvLimiter").field("isolate", self.isolate).finish_non_exhaustive()
    }
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("this store cannot do {what}"))
}
