//! What is limited, and how.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_core::{BodyFormat, Check, Error, Key, Limiter, Policy, UnixMillis};
use tower_layer::Layer;

use crate::{KeyExtractor, RateLimit};

/// What happens to a request when the limiter cannot say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailMode {
    /// It goes on, unlimited, and its response says so.
    Open,
    /// It is answered with a 503.
    Closed,
}

/// Limits the requests to a service by a policy; see the [crate](crate) for an example.
#[derive(Debug)]
pub struct RateLimitLayer<L>(Arc<Rules<L>>);

#[derive(Debug)]
pub(crate) struct Rules<L> {
    pub(crate) limiter: Arc<L>,
    pub(crate) policy: Policy,
    pub(crate) key_extractor: KeyExtractor,
    pub(crate) fail_mode: FailMode,
    pub(crate) body_format: BodyFormat,
    pub(crate) clock: fn() -> UnixMillis,
}

impl<L: Limiter> RateLimitLayer<L> {
    /// Limits each key_extractor by `policy`, and counts with `limiter`, which others may share.
    ///
    /// # Errors
    /// [`Unsupported`](tidegate_core::ErrorKind::Unsupported) where the limiter cannot do what the policy wants.
    pub fn new(
        limiter: Arc<L>,
        policy: Policy,
        key_extractor: KeyExtractor,
        fail_mode: FailMode,
    ) -> Result<Self, Error> {
        limiter.capabilities().supports(&Check::new(&policy, &Key::missing_ip(), UnixMillis::new(0)))?;
        let body_format = BodyFormat::default();
        Ok(Self(Arc::new(Rules { limiter, policy, key_extractor, fail_mode, body_format, clock: system_clock })))
    }

    /// The body of a 429: [JSON](BodyFormat::Json) unless set.
    #[must_use]
    pub fn body_format(self, body_format: BodyFormat) -> Self {
        self.with(|rules| rules.body_format = body_format)
    }

    /// What tells the time: the system's clock unless set. For tests, whose time is virtual.
    #[must_use]
    pub fn clock(self, clock: fn() -> UnixMillis) -> Self {
        self.with(|rules| rules.clock = clock)
    }

    fn with(mut self, set: impl FnOnce(&mut Rules<L>)) -> Self {
        set(Arc::make_mut(&mut self.0));
        self
    }
}

impl<S, L> Layer<S> for RateLimitLayer<L> {
    type Service = RateLimit<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.0))
    }
}

// Not derived, for that would ask of the limiter that it can be cloned.

impl<L> Clone for RateLimitLayer<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L> Clone for Rules<L> {
    fn clone(&self) -> Self {
        Self {
            limiter: Arc::clone(&self.limiter),
            policy: self.policy.clone(),
            key_extractor: self.key_extractor.clone(),
            fail_mode: self.fail_mode,
            body_format: self.body_format,
            clock: self.clock,
        }
    }
}

fn system_clock() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
