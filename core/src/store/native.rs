use core::future::Future;

use crate::limiter::{Accuracy, Capabilities, Check, Dimensions, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::{Decision, Error};

/// A platform's own limiter. It keeps the counts by its own clock, and often answers only yes or no.
///
/// See the [contract of all stores](super#contract).
pub trait Native: MaybeSend + MaybeSync {
    /// The features that the platform supports.
    fn capabilities(&self) -> Capabilities;

    /// Counts the request, and returns whether the platform admits it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the policy is not the one that the platform is configured
    /// with, or the reason why the platform did not answer.
    fn limit(&self, check: Check<'_>) -> impl Future<Output = Result<bool, Error>> + MaybeSend;
}

impl Capabilities {
    /// A yes or no per location: the features of a [`Native`] limiter. Set the platform's algorithm.
    pub const NATIVE: Self = Self {
        accuracy: Accuracy::PerLocation,
        algorithms: &[],
        max_quotas: 1,
        dimensions: Dimensions::One,
        costs: false,
        charge_denied: false,
        peek: false,
        refund: false,
        reset: false,
        block: false,
        grant: false,
        idempotency: false,
        lends: false,
        borrows: false,
        round_trips: 1,
    };
}

/// A [`Limiter`] over a [`Native`] one, for policies of one quota. Its decisions have no remaining count and no
/// `retry_after`, because the platform does not report them. Peek, refund, reset and block are unsupported.
///
/// ```
/// use tidegate_core::store::{Native, NativeLimiter};
/// use tidegate_core::{Capabilities, Check, Error, Key, LimiterExt, Millis, Policy, Quota, UnixMillis};
///
/// struct Platform;
///
/// impl Native for Platform {
///     fn capabilities(&self) -> Capabilities {
///         Capabilities::NATIVE.algorithms(&["fixed_window"])
///     }
///
///     async fn limit(&self, _: Check<'_>) -> Result<bool, Error> {
///         Ok(false)
///     }
/// }
///
/// # fn main() -> Result<(), Error> {
/// # pollster::block_on(async {
/// let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// let denied = NativeLimiter::new(Platform).check(Check::new(&policy, &key, UnixMillis::new(0))).await?;
/// assert!(!denied.is_allowed());
/// assert_eq!((denied.binding().limit(), denied.binding().remaining()), (100, None));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NativeLimiter<S> {
    store: S,
}

impl<S: Native> NativeLimiter<S> {
    /// A limiter over `store`.
    pub const fn new(store: S) -> Self {
        Self { store }
    }
}

impl<S: Native> Limiter for NativeLimiter<S> {
    fn capabilities(&self) -> Capabilities {
        self.store.capabilities().max_quotas(1).peek(false).refund(false).reset(false).block(false).idempotency(false)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        operation.verify(&self.capabilities())?;
        let Operation::Check(check) = operation else { return Err(operation.unsupported()) };
        let allowed = self.store.limit(check).await?;
        Ok(Decision::native(allowed, check.policy.quotas()[0].rule().limit(), check.now).into())
    }
}
