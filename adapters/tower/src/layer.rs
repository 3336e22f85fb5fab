//! The layer and its settings.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use http::request::Parts;
use tidegate_core::{BodyFormat, Check, Error, ErrorKind, Key, Limiter, Millis, Policy, UnixMillis};
use tower_layer::Layer;

use crate::charge::Estimate;
use crate::{KeyExtractor, RateLimit};

/// What to do with a request if the store fails.
///
/// It applies to [store failures](tidegate_core::ErrorKind::is_store_failure) only: an unreachable store and a timeout.
/// The layer rejects a request after any other error, in both modes, because a client can cause it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailMode {
    /// Admit the request without counting it. The response carries `x-tidegate-failed-open` with the error's kind.
    Open,
    /// Reject the request with a 503.
    Closed,
}

/// Limits the requests to a service by one policy. See the [crate documentation](crate) for an example.
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
    pub(crate) estimate: Option<Estimate>,
    pub(crate) settle_within: Millis,
}

impl<L: Limiter> RateLimitLayer<L> {
    /// The default time in which a [`Charge`](crate::Charge) can be settled: ten minutes.
    pub const DEFAULT_SETTLE_WITHIN: Millis = Millis::from_secs(600);

    /// Applies `policy` to each key that `key_extractor` finds, and counts with `limiter`, which may be shared.
    ///
    /// # Errors
    /// - [`Unsupported`](tidegate_core::ErrorKind::Unsupported) if the limiter lacks a feature that the policy needs.
    /// - [`Invalid`](tidegate_core::ErrorKind::Invalid) if `key_extractor` needs the connection's address and has no
    ///   [`peer`](KeyExtractor::peer): all clients would share one key. Also if the policy has several
    ///   [dimensions](Policy#dimensions): `key_extractor` finds one key for each request.
    pub fn new(
        limiter: Arc<L>,
        policy: Policy,
        key_extractor: KeyExtractor,
        fail_mode: FailMode,
    ) -> Result<Self, Error> {
        key_extractor.validate()?;
        limiter.capabilities().supports_policy(&policy)?;
        has_one_dimension(&policy)?;
        Ok(Self(Arc::new(Rules {
            limiter,
            policy,
            key_extractor,
            fail_mode,
            body_format: BodyFormat::default(),
            clock: system_clock,
            estimate: None,
            settle_within: Self::DEFAULT_SETTLE_WITHIN,
        })))
    }

    /// Sets the format of a 429's body. The default is [JSON](BodyFormat::Json).
    #[must_use]
    pub fn body_format(self, body_format: BodyFormat) -> Self {
        self.with(|rules| rules.body_format = body_format)
    }

    /// Charges each request an estimate of its cost instead of 1. The service finds a [`Charge`](crate::Charge) in the
    /// request's extensions, with which it settles the actual cost. Without a settlement, the estimate stays charged.
    ///
    /// `estimate` may use whatever the client sent: a request that costs more than its estimate is charged the rest when
    /// it is settled. It must not return 0. The layer then rejects the request with a 503, as after any error that is not
    /// a store failure.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the limiter supports no costs or no settlements.
    pub fn estimate(self, estimate: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Result<Self, Error> {
        let Rules { limiter, policy, settle_within, .. } = &*self.0;
        let (key, now) = (Key::missing_ip(), UnixMillis::new(0));
        limiter.capabilities().supports(&Check::new(policy, &key, now).cost(2).idempotent("", *settle_within))?;
        Ok(self.with(|rules| rules.estimate = Some(Estimate::new(estimate))))
    }

    /// Sets how long after its check a request can be settled. The default is
    /// [ten minutes](Self::DEFAULT_SETTLE_WITHIN). The store remembers each charge that long.
    ///
    /// # Errors
    /// [`Invalid`](ErrorKind::Invalid) for zero: no request could be settled.
    pub fn settle_within(self, span: Millis) -> Result<Self, Error> {
        if span == Millis::ZERO {
            let message = "settle_within: 0 ms leaves no time to settle; write at least 1 ms";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(self.with(|rules| rules.settle_within = span))
    }

    /// Sets the clock, for tests on virtual time. The default is the system's clock.
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

// Derived implementations would require `L: Clone`.

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
            estimate: self.estimate.clone(),
            settle_within: self.settle_within,
        }
    }
}

fn has_one_dimension(policy: &Policy) -> Result<(), Error> {
    if policy.dimensions().len() == 1 {
        return Ok(());
    }
    let names: Vec<_> = policy.dimensions().iter().map(|dimension| format!("{:?}", dimension.name())).collect();
    let message = format!(
        "policy: it has several dimensions ({}), and a key extractor finds one key for each request; write a layer with a \
         policy for each dimension, or call Limiter::check in the handler with a key for each",
        names.join(", ")
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

fn system_clock() -> UnixMillis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis::new(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
