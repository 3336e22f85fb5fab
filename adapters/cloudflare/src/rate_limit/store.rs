//! The store: each decision is one call of the binding.

use std::fmt;
use std::future::Future;

use tidegate_core::algorithm::FixedWindow;
use tidegate_core::store::{Native, NativeLimiter};
use tidegate_core::{Capabilities, Check, Error, MaybeSend, MaybeSync, Millis, Policy, Rule};

use crate::rate_limit::error;

/// A limiter that decides by the platform's binding.
pub type RateLimitLimiter<B> = NativeLimiter<RateLimit<B>>;

/// What the binding supports.
pub const CAPABILITIES: Capabilities = Capabilities::NATIVE.algorithms(&["fixed_window"]);

/// A Rate Limiting binding: `worker::RateLimiter` in a Worker, or any type that replaces it in a test.
pub trait Binding: MaybeSend + MaybeSync {
    /// Counts a request under `key`, and returns whether the platform admits it.
    ///
    /// # Errors
    /// The call failed. An error that a client can cause must not be of a kind for which
    /// [`is_store_failure`](tidegate_core::ErrorKind::is_store_failure) is true.
    fn limit(&self, key: &str) -> impl Future<Output = Result<bool, Error>> + MaybeSend;
}

/// The platform's own limiter, with the limit and period that it is configured with.
#[derive(Clone)]
pub struct RateLimit<B> {
    binding: B,
    quota: FixedWindow,
}

impl<B: Binding> RateLimit<B> {
    /// The periods that the platform offers.
    pub const PERIODS: [Millis; 2] = [Millis::from_secs(10), Millis::from_secs(60)];

    /// Creates a store over `binding`. `limit` and `period` are those of its `simple` entry in `wrangler.jsonc`.
    ///
    /// # Errors
    /// [`Invalid`](tidegate_core::ErrorKind::Invalid) for a period other than 10 s or 60 s, and for a limit of zero.
    pub fn new(binding: B, limit: u64, period: Millis) -> Result<Self, Error> {
        if !Self::PERIODS.contains(&period) {
            return Err(error::period(period));
        }
        Ok(Self { binding, quota: FixedWindow::new(limit, period)? })
    }

    /// Creates a limiter over this store.
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

    /// Calls the binding once. The storage key contains the policy's name, so two policies do not share counts.
    async fn limit(&self, check: Check<'_>) -> Result<bool, Error> {
        if !self.is_configured_with(check.policy) {
            return Err(error::another_policy(&self.quota));
        }
        self.binding.limit(&check.keys.single(check.policy)?.storage_key(check.policy)).await
    }
}

impl<B> fmt::Debug for RateLimit<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit").field("quota", &self.quota).finish_non_exhaustive()
    }
}
