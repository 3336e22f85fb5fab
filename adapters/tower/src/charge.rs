//! Estimates of unknown costs and their settlement, and the slots of concurrency limits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use tidegate_core::gate::{Hold, Verdict};
use tidegate_core::{Decision, Error, ErrorKind, Origin};
use tokio::runtime::Handle;

use crate::layer::Settings;

/// A request extension: what the request was charged as an [estimate](crate::RateLimitLayer::estimate). Settle it once the
/// actual cost is known.
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// # use tidegate_tower::{
/// #     Charge, ClientIpSource, Gate, MemoryLimiter, Millis, OnFailure, Platform, Policy, Quota, RateLimitLayer,
/// #     Rules,
/// # };
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
/// # let (rules, client_ip) = (Rules::all(policy, OnFailure::Closed), ClientIpSource::new(Platform::Direct));
/// # let gate = Gate::new(rules, MemoryLimiter::new(), client_ip)?;
/// # let layer = RateLimitLayer::with_peer(gate, |_| None);
/// let layer = layer.estimate(|_| 2_000)?;
/// let app = Router::new().route("/chat", post(chat)).layer(layer);
/// # Ok(app)
/// # }
/// ```
///
/// Every request that reaches the service has one, also if it was admitted because the store
/// failed. If two layers estimate, the service finds that of the inner layer. The estimate of the outer one stays charged.
///
/// A server drops the service's future if the client disconnects, and with it a settlement that comes later. To settle in
/// any case, move the charge into a task of its own. A clone settles the same charge.
///
/// If the policy has a [concurrency limit](tidegate_core::algorithm::Concurrency), the request holds its slot until it is settled,
/// or until its response has been sent and every clone of its charge is dropped.
#[derive(Clone)]
pub struct Charge(Arc<Held>);

/// How long to wait before each retry of a release that the store has not answered.
const RELEASE_PAUSES: [Duration; 5] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
];

/// What a request was charged. If the policy has slots and the charge was not settled, dropping this gives them back.
struct Held {
    settings: Arc<Settings>,
    hold: Hold,
    /// Whether the request may hold a slot.
    holds: AtomicBool,
    /// Whether the store has answered that the request is charged.
    is_certain: AtomicBool,
    /// A task of this runtime gives the slot back. `None` outside of a runtime: the slot is then free after its lifetime.
    runtime: Option<Handle>,
}

impl Charge {
    /// Of a request that is about to be checked: from then on, it may hold a slot.
    pub(crate) fn new(settings: Arc<Settings>, hold: Hold) -> Self {
        let holds = AtomicBool::new(hold.has_slots());
        let runtime = Handle::try_current().ok();
        Self(Arc::new(Held { settings, hold, holds, is_certain: AtomicBool::new(false), runtime }))
    }

    /// Learns the verdict.
    pub(crate) fn answered(&self, verdict: &Verdict) {
        let Some(decision) = verdict.decision() else { return };
        // The store may have given a slot, and not have said so in time.
        if decision.origin() == Origin::Fallback && !decision.is_allowed() {
            return;
        }
        self.0.is_certain.store(true, Ordering::Relaxed);
        if !decision.is_allowed() {
            self.0.holds.store(false, Ordering::Relaxed);
        }
    }

    /// Corrects the charge to the `actual` cost, as [`Gate::settle`](tidegate_core::gate::Gate::settle) does: returns what the
    /// request cost less than estimated, or charges what it cost more, also beyond the limit. The key's further requests are
    /// then denied until time has repaid the debt. An actual cost of 0 cancels the charge.
    ///
    /// The first settlement counts. A further one changes nothing, and its decision
    /// [is a replay](Decision::is_replay). So it can be retried after a timeout.
    ///
    /// # Errors
    /// As [`LimiterExt::settle`](tidegate_core::LimiterExt::settle). [`UnknownCharge`](ErrorKind::UnknownCharge) if it is
    /// [too late](tidegate_core::gate::Gate::settle_within), or if the store failed and the request was not charged. The layer
    /// has logged the error.
    pub async fn settle(&self, actual: u64) -> Result<Decision, Error> {
        let Held { settings, hold, holds, .. } = &*self.0;
        let settled = settings.gate.settle(hold, actual, (settings.clock)()).await;
        match &settled {
            Ok(_) => holds.store(false, Ordering::Relaxed),
            Err(error) => {
                let now = (settings.clock)();
                settings.log.unsettled(hold.policy().name(), error.kind(), "unsettled", now);
            }
        }
        settled
    }

    /// Corrects the charge to what the request took, by the [prices](tidegate_core::gate::Rules::price) of a model in the rules file: `counts` are
    /// the numbers of each of its units, as the model's answer has them.
    ///
    /// # Errors
    /// Those of [`Rules::price`](tidegate_core::gate::Rules::price), which settle nothing and are not logged, and those of
    /// [`settle`](Self::settle).
    pub async fn settle_priced(&self, model: &str, counts: &[(&str, u64)]) -> Result<Decision, Error> {
        let actual = self.0.settings.gate.rules().price(model, counts)?;
        self.settle(actual).await
    }

    /// Whether the request may hold a slot.
    pub(crate) fn may_hold(&self) -> bool {
        self.0.holds.load(Ordering::Relaxed)
    }

    /// Cancels the charge, in a task of its own, if the service's status is one that is not charged.
    pub(crate) fn responded(&self, status: StatusCode) {
        if let (true, Some(runtime)) = (self.0.settings.refunds(status), &self.0.runtime) {
            let charge = self.clone();
            runtime.spawn(async move { charge.settle(0).await.map(drop) });
        }
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
        let (settings, hold) = (Arc::clone(&self.settings), self.hold.clone());
        let is_certain = *self.is_certain.get_mut();
        runtime.spawn(async move {
            let mut pauses = RELEASE_PAUSES.iter();
            let error = loop {
                let Err(error) = settings.gate.release(&hold, (settings.clock)()).await else { return };
                match pauses.next() {
                    Some(pause) if error.kind().is_store_failure() => tokio::time::sleep(*pause).await,
                    _ => break error,
                }
            };
            // If the check has failed, there may be no charge.
            if is_certain || error.kind() != ErrorKind::UnknownCharge {
                settings.log.unsettled(hold.policy().name(), error.kind(), "unreleased", (settings.clock)());
            }
        });
    }
}
