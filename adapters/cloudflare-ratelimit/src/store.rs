//! The store: one call of the binding a decision.

use std::fmt;
use std::future::Future;

use tidegate_core::algorithm::FixedWindow;
use tidegate_core::store::{Native, NativeLimiter};
use tidegate_core::{Capabilities, Check, Error, MaybeSend, MaybeSync, Millis, Policy, Rule};

use crate::error;

/// A limiter by the platform's binding.
pub type RateLimitLimiter<B> = NativeLimiter<RateLimit<B>>;

/// What the binding can do.
pub const CAPABILITIES: Capabilities = Capabilities { algorithms: &["fixed_window"], ..Capabilities::NATIVE };

/// The one question the platform answers: in a Worker `worker::RateLimiter`, in a test whatever stands in for it.
pub trait Binding: MaybeSend + MaybeSync {
    /// Counts a request under `key`; whether it may go on.
    ///
    /// # Errors
    /// Whatever keeps the platform from answering.
    fn limit(&self, key: &str) -> impl Future<Output = Result<bool, Error>> + MaybeSend;
}

/// The platform's own limiter, with the policy it was configured with.
#[derive(Clone)]
pub struct RateLimit<B> {
    binding: B,
    quota: FixedWindow,
}

impl<B: Binding> RateLimit<B> {
    /// The periods the platform offers.
    pub const PERIODS: [Millis; 2] = [Millis::from_secs(10), Millis::from_secs(60)];

    /// A store over `binding`, with the `limit` and `period` of its `simple` entry in `wrangler.jsonc`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a period other than 10 s and 60 s, and a limit of zero.
    pub fn new(binding: B, limit: u64, period: Millis) -> Result<Self, Error> {
        if !Self::PERIODS.contains(&period) {
            return Err(error::period(period));
        }
        Ok(Self { binding, quota: FixedWindow::new(limit, period)? })
    }

    /// A limiter over this store.
    #[must_use]
    pub const fn limiter(self) -> RateLimitLimiter<B> {
        NativeLimiter::new(self)
    }

    fn is_configured_with(&self, policy: &Policy) -> bool {
        matches!(policy.quotas(), [quota] if *quota.rule() == Rule::FixedWindow(self.quota))
    }
}

impl<B: Binding> Native for RateLimit<B> {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    /// One call of the binding, under the core's storage key, so that policies of one shape and different names do
    /// not share counts.
    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        if !self.is_configured_with(check.policy) {
            return Err(error::another_policy(&self.quota));
        }
        self.binding.limit(&check.key.storage_key(check.policy)).await
    }
}

impl<B> fmt::Debug for RateLimit<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("quota", &self.quota).finish_non_exhaustive()
    }
}
