//! The binding, as crate `worker` sees it.

use tollgate_core::{Error, Millis};
use worker::{Env, RateLimiter};

use crate::error;
use crate::store::{Binding, RateLimit};

impl Binding for RateLimiter {
    async fn limit(&self, key: &str) -> Result<bool, Error> {
        let answer = Self::limit(self, key.to_owned()).await;
        answer.map(|outcome| outcome.success).map_err(|error| error::failed(&error.to_string()))
    }
}

impl RateLimit<RateLimiter> {
    /// A store over the binding `name` of a Worker's environment; see [`RateLimit::new`].
    ///
    /// # Errors
    /// [`Invalid`](tollgate_core::ErrorKind::Invalid) where there is no such binding, and as [`RateLimit::new`].
    pub fn from_env(env: &Env, name: &str, limit: u64, period: Millis) -> Result<Self, Error> {
        let binding =
            env.rate_limiter(name).map_err(|error| error::missing(name, limit, period, &error.to_string()))?;
        Self::new(binding, limit, period)
    }
}
