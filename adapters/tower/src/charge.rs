//! Estimates of unknown costs and their settlement, and the slots of concurrency limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, mem};

use http::request::Parts;
use tidegate_core::{BoxFuture, Decision, Error, ErrorKind, Key, Limiter, Settle};
use tokio::runtime::Handle;

use crate::layer::Rules;

/// A request extension: what the request was charged as an [estimate](crate::RateLimitLayer::estimate). Settle it once the
/// actual cost is known.
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// # use std::sync::Arc;
/// # use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
/// # use tidegate_tower::{FailMode, KeyExtractor};
/// use tidegate_tower::{Charge, RateLimitLayer};
///
/// async fn chat(Extension(charge): Extension<Charge>, prompt: String) -> String {
///     let (answer, tokens) = complete(&prompt).await;
///     charge.settle(tokens).await.ok();
///     answer
/// }
///
/// # async fn complete(prompt: &str) -> (String, u64) { (prompt.to_string(), 120) }
/// # fn app() -> Result<Router, tidegate_core::Error> {
/// # let policy = Policy::new("llm", [Quota::token_bucket(100_000, 1_000, Millis::from_secs(1))?])?;
/// # let key_extractor = KeyExtractor::new(ClientIpSource::new(Platform::Vercel));
/// # let (limiter, fail_mode) = (Arc::new(MemoryLimiter::new()), FailMode::Open);
/// let layer = RateLimitLayer::new(limiter, policy, key_extractor, fail_mode)?.estimate(|_| 2_000)?;
/// let app = Router::new().route("/chat", post(chat)).layer(layer);
/// # Ok(app)
/// # }
/// ```
///
/// Every request that reaches the service has one, also if it was [admitted](crate::Verdict::FailedOpen) because the store
/// failed. If two layers estimate, the service finds that of the inner layer. The estimate of the outer one stays charged.
///
/// A server drops the service's future if the client disconnects, and with it a settlement that comes later. To settle in
/// any case, move the charge into a task of its own. A clone settles the same charge.
///
/// If the policy has a [concurrency limit](tidegate_core::algorithm::Concurrency), the request holds its slot until it is settled,
/// or until its response has been sent and every clone of its charge is dropped.
#[derive(Clone)]
pub struct Charge(Arc<Held>);

/// What a request was charged. If the policy has slots and the charge was not settled, dropping this gives them back.
struct Held {
    rules: Arc<dyn Settles>,
    key: Key,
    token: String,
    /// Whether the request may hold a slot.
    holds: AtomicBool,
    /// Whether the store has answered that the request is charged.
    is_certain: AtomicBool,
    /// A task of this runtime gives the slot back. `None` outside of a runtime: the slot is then free after its lifetime.
    runtime: Option<Handle>,
}

impl Charge {
    /// Of a request that is about to be checked: from then on, it may hold a slot.
    pub(crate) fn new<L: Limiter + 'static>(rules: Arc<Rules<L>>, key: Key, token: String) -> Self {
        let holds = AtomicBool::new(rules.policy.has_slots());
        let runtime = Handle::try_current().ok();
        Self(Arc::new(Held { rules, key, token, holds, is_certain: AtomicBool::new(false), runtime }))
    }

    /// Learns the answer to the check.
    pub(crate) fn answered(&self, decided: &Result<Decision, Error>) {
        let Ok(decision) = decided else { return };
        self.0.is_certain.store(true, Ordering::Relaxed);
        if !decision.is_allowed() {
            self.0.holds.store(false, Ordering::Relaxed);
        }
    }

    /// Corrects the charge to the `actual` cost, as [`Limiter::settle`] does: returns what the request cost less than
    /// estimated, or charges what it cost more, also beyond the limit. The key's further requests are then denied until
    /// time has repaid the debt. An actual cost of 0 cancels the charge.
    ///
    /// The first settlement counts. A further one changes nothing, and its decision
    /// [is a replay](Decision::is_replay). So it can be retried after a timeout.
    ///
    /// # Errors
    /// As [`Limiter::settle`]. [`UnknownCharge`](ErrorKind::UnknownCharge) if it is
    /// [too late](crate::RateLimitLayer::settle_within), or if the store failed and the request was not charged. The layer
    /// has logged the error.
    pub async fn settle(&self, actual: u64) -> Result<Decision, Error> {
        let Held { rules, key, token, holds, .. } = &*self.0;
        let settled = rules.settle(key, token, Some(actual)).await;
        match &settled {
            Ok(_) => holds.store(false, Ordering::Relaxed),
            Err(error) => rules.failed(error.kind(), "unsettled"),
        }
        settled
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Charge(…)")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (true, Some(runtime)) = (*self.holds.get_mut(), &self.runtime) else { return };
        let (rules, key, token) = (Arc::clone(&self.rules), self.key.clone(), mem::take(&mut self.token));
        let is_certain = *self.is_certain.get_mut();
        runtime.spawn(async move {
            let Err(error) = rules.settle(&key, &token, None).await else { return };
            // If the check has failed, there may be no charge.
            if is_certain || error.kind() != ErrorKind::UnknownCharge {
                rules.failed(error.kind(), "unreleased");
            }
        });
    }
}

/// [`Rules`] of any limiter.
trait Settles: Send + Sync {
    /// Settles a charge to its actual cost, or to what was charged.
    fn settle<'a>(
        &'a self,
        key: &'a Key,
        token: &'a str,
        actual: Option<u64>,
    ) -> BoxFuture<'a, Result<Decision, Error>>;

    fn failed(&self, kind: ErrorKind, outcome: &'static str);
}

impl<L: Limiter> Settles for Rules<L> {
    fn settle<'a>(
        &'a self,
        key: &'a Key,
        token: &'a str,
        actual: Option<u64>,
    ) -> BoxFuture<'a, Result<Decision, Error>> {
        let (policy, now) = (&self.policy, (self.clock)());
        Box::pin(self.limiter.settle(match actual {
            Some(cost) => Settle::new(policy, key, token, cost, now),
            None => Settle::release(policy, key, token, now),
        }))
    }

    fn failed(&self, kind: ErrorKind, outcome: &'static str) {
        self.warn(kind, outcome);
    }
}

/// How to estimate the cost of a request.
#[derive(Clone)]
pub(crate) struct Estimate(Arc<dyn Fn(&Parts) -> u64 + Send + Sync>);

impl Estimate {
    pub(crate) fn new(estimate: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(estimate))
    }

    /// The cost and the token of one charge.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an estimate of zero: stores do not remember a charge of nothing.
    pub(crate) fn of(&self, head: &Parts) -> Result<(u64, String), Error> {
        match (self.0)(head) {
            0 => Err(Error::new(ErrorKind::Invalid, "estimate: 0 charges nothing; return at least 1")),
            cost => Ok((cost, token()?)),
        }
    }
}

impl fmt::Debug for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Estimate(…)")
    }
}

/// A token that no other charge has. Each is random on its own: a counter with a random start would repeat in processes that
/// are resumed from one snapshot, and a request with a repeated token is not charged.
pub(crate) fn token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = "the system has no random numbers for the token of a charge; nothing was charged";
        Error::new(ErrorKind::Refused, message).with_source(error)
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
