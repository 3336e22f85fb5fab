//! The trait [`Limiter`], which every adapter implements.

mod accuracy;
mod call;
mod capabilities;
#[cfg(feature = "std")]
pub(crate) mod deny_cache;
mod erased;
#[cfg(feature = "std")]
pub(crate) mod fallback;
mod limiter_fn;
mod loan;
mod once;
mod operation;
#[cfg(feature = "std")]
mod shadow;
#[cfg(feature = "std")]
mod sharded;
#[cfg(feature = "std")]
mod tiered;

pub use accuracy::{Accuracy, Ceiling, Drift, Floor, Load};
pub use call::{Block, ChargeId, Check, Grant, Idempotency, Refund, Settle};
#[cfg(feature = "lending")]
pub(crate) use capabilities::LOANS;
pub use capabilities::{Capabilities, Dimensions};
#[cfg(feature = "std")]
pub use deny_cache::DenyCache;
#[cfg(any(feature = "lending", feature = "std"))]
pub(crate) use erased::BoxFuture;
pub use erased::ErasedLimiter;
#[cfg(feature = "std")]
pub use fallback::{Fallback, Health};
pub use limiter_fn::limiter_fn;
pub use loan::{Answer, LIFETIME_MAX, Lease, Loan, Question, Returned};
pub use operation::{Operation, Reply};
#[cfg(feature = "std")]
pub use shadow::{Shadow, ShadowCounts};
#[cfg(feature = "std")]
pub use sharded::Sharded;
#[cfg(feature = "std")]
pub use tiered::Tiered;

use core::future::Future;

use crate::{Decision, Error, Keys, Millis, Policy, UnixMillis};

/// `Send` on native hosts, and no requirement on WebAssembly, where an isolate has one thread and its host's handles are not
/// `Send`. So one [`Limiter`] trait serves both, and generic native code can move its futures between threads.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}

/// `Send` on native hosts, and no requirement on WebAssembly.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}

/// `Sync` on native hosts, and no requirement on WebAssembly; see [`MaybeSend`].
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSync: Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Sync + ?Sized> MaybeSync for T {}

/// `Sync` on native hosts, and no requirement on WebAssembly; see [`MaybeSend`].
#[cfg(target_arch = "wasm32")]
pub trait MaybeSync {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSync for T {}

/// A rate limiter. Each operation names the policy and the key.
///
/// A caller uses the methods of [`LimiterExt`], one for each [`Operation`].
///
/// An error is not a denial. A caller may admit requests while the store is down, after a store failure
/// ([`is_store_failure`](crate::ErrorKind::is_store_failure)) only: a client can cause every other error.
///
/// References, `Box` and `Arc` of a limiter are limiters too. For one that is selected at run time, see [`ErasedLimiter`].
///
/// ```
/// use tidegate_core::{Check, Key, Limiter, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// async fn guard(limiter: &impl Limiter, policy: &Policy, key: &Key, now: UnixMillis) -> bool {
///     match limiter.check(Check::new(policy, key, now)).await {
///         Ok(decision) => decision.is_allowed(),
///         // Fail open while the store is down, and only then.
///         Err(error) => error.kind().is_store_failure(),
///     }
/// }
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
/// let (limiter, key) = (MemoryLimiter::new(), Key::new("ip:192.0.2.1"));
/// assert!(pollster::block_on(guard(&limiter, &policy, &key, UnixMillis::new(0))));
/// assert!(!pollster::block_on(guard(&limiter, &policy, &key, UnixMillis::new(0))));
/// # Ok(())
/// # }
/// ```
pub trait Limiter: MaybeSend + MaybeSync {
    /// The features that this limiter supports, and its accuracy.
    fn capabilities(&self) -> Capabilities;

    /// Applies an operation, in one step.
    ///
    /// A limiter around another one handles the operations that it changes, and passes on the rest. What it does not support, it
    /// answers with [`Operation::unsupported`], and its [capabilities](Self::capabilities) say so.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a feature that [`Limiter::capabilities`] does not declare, or the
    /// reason why the store did not answer.
    fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Reply, Error>> + MaybeSend;

    /// Decides on a check without a future, for a limiter that never waits, such as one in memory. Others return `None`, as by default,
    /// and have done nothing: [`Limiter::apply`] then decides.
    fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        let _ = check;
        None
    }
}

/// The operations of every [`Limiter`], each as a method.
pub trait LimiterExt: Limiter {
    /// Decides on a request, and charges it if every quota admits it.
    ///
    /// # Errors
    /// As [`Limiter::apply`].
    #[inline]
    fn check(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend {
        async move { self.apply(Operation::Check(check)).await?.decision() }
    }

    /// Decides on a check, takes back a loan of its key and grants the next one, in one step. Requires [`Capabilities::lends`].
    ///
    /// A borrower asks it, such as `LendingLimiter` with the feature `lending`.
    ///
    /// # Errors
    /// As [`Limiter::apply`].
    fn lend(&self, check: Check<'_>, question: Question) -> impl Future<Output = Result<Answer, Error>> + MaybeSend {
        async move { self.apply(Operation::Lend(check, &question)).await?.answer() }
    }

    /// Returns what [`LimiterExt::check`] would, and charges nothing. Requires [`Capabilities::peek`].
    ///
    /// # Errors
    /// As [`Limiter::apply`].
    fn peek(&self, check: Check<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend {
        async move { self.apply(Operation::Peek(check)).await?.decision() }
    }

    /// Returns a charge to its key; see [`Policy::refund`]. Requires [`Capabilities::refund`].
    ///
    /// # Errors
    /// As [`Limiter::apply`].
    fn refund(&self, refund: Refund<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend {
        async move { self.apply(Operation::Refund(refund)).await?.done() }
    }

    /// Corrects a charge to its actual cost; see [`Settle`]. Requires [`Capabilities::idempotency`].
    ///
    /// Returns what a request of cost 0 would get now: it is denied while a quota is in debt. If the charge was settled
    /// before, nothing changes, and [`Decision::is_replay`] is true.
    ///
    /// # Errors
    /// [`UnknownCharge`](crate::ErrorKind::UnknownCharge) if the charge is not remembered,
    /// [`Invalid`](crate::ErrorKind::Invalid) for a cost that no policy can have, and those of [`Limiter::apply`].
    fn settle(&self, settle: Settle<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend {
        async move { self.apply(Operation::Settle(settle)).await?.decision() }
    }

    /// Blocks keys by hand until a given time, or ends their blocks; see [`Block`]. Requires [`Capabilities::block`].
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) if the policy has neither a penalty nor a block, and those of [`Limiter::apply`].
    fn block(&self, block: Block<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend {
        async move { self.apply(Operation::Block(block)).await?.done() }
    }

    /// Whether a token is used for the first time within `ttl`: true exactly once, also if many ask at once. For the events of webhooks, which are
    /// sent again, and for tokens that may be used once. The store keeps a hash of the token.
    ///
    /// `namespace` is a name of what the tokens are of, 1 to 32 of the characters `a-z A-Z 0-9 - _ .` The same token in another namespace, or with another `ttl`,
    /// is another one. See [the guide](crate::guide::once) for what an error means to a handler.
    ///
    /// ```
    /// use tidegate_core::{LimiterExt, MemoryLimiter, Millis, UnixMillis};
    /// # fn main() -> Result<(), tidegate_core::Error> {
    /// # pollster::block_on(async {
    /// let (limiter, day, now) = (MemoryLimiter::new(), Millis::from_secs(86_400), UnixMillis::new(1_800_000_000_000));
    /// assert!(limiter.once("webhooks", "evt_1", day, now).await?);
    /// assert!(!limiter.once("webhooks", "evt_1", day, now).await?);
    /// assert!(limiter.once("webhooks", "evt_2", day, now).await?);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Unsupported`](crate::ErrorKind::Unsupported) for a limiter that is not [exact](Accuracy::Exact), with its accuracy.
    /// - [`Invalid`](crate::ErrorKind::Invalid) for an empty token, a `ttl` of zero or too long, and a namespace that cannot be a name.
    /// - Those of [`Limiter::apply`]. Then nobody knows whether the token is used: it is never true.
    fn once(
        &self,
        namespace: &str,
        token: impl AsRef<[u8]>,
        ttl: Millis,
        now: UnixMillis,
    ) -> impl Future<Output = Result<bool, Error>> + MaybeSend {
        let charge = once::charge(&self.capabilities(), namespace, token.as_ref(), ttl);
        async move {
            let (policy, key) = charge?;
            Ok(self.check(Check::new(&policy, &key, now)).await?.is_allowed())
        }
    }

    /// Adds units to a balance, once for each token; see [`Grant`]. Requires [`Capabilities::grant`].
    ///
    /// Returns what a request of cost 0 would get now, by which the balance can be read: it is the decision of the quotas that count
    /// by the balance's dimension, and of all quotas if the policy has a [group](Policy::group_by) of another dimension. If the token is
    /// remembered, nothing changes, and [`Decision::is_replay`] is true.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) for a policy without a balance, and for what [`Policy::grant`] does not take,
    /// [`TokenReused`](crate::ErrorKind::TokenReused) if the token belongs to a grant of other units,
    /// [`Refused`](crate::ErrorKind::Refused) if the store has no room to remember it, and those of [`Limiter::apply`]. Nothing is granted
    /// then, or, after a [`Timeout`](crate::ErrorKind::Timeout), at most once: repeat it with the same token.
    fn grant(&self, grant: Grant<'_>) -> impl Future<Output = Result<Decision, Error>> + MaybeSend {
        async move {
            let policy = grant.policy;
            let Some(own) = policy.grantable() else { return self.apply(Operation::Grant(grant)).await?.decision() };
            // Units that no check by the whole policy could spend are not granted.
            self.capabilities().supports_policy(policy)?;
            let keys = Keys::from(grant.keys.of(&own.dimensions()[0])?);
            self.apply(Operation::Grant(Grant { policy: &own, keys, ..grant })).await?.decision()
        }
    }

    /// Removes what these keys have used of a policy, and their blocks. What a balance has stays. Requires [`Capabilities::reset`].
    /// Answers to idempotency tokens remain.
    ///
    /// # Errors
    /// As [`Limiter::apply`].
    fn reset(&self, policy: &Policy, keys: Keys<'_>) -> impl Future<Output = Result<(), Error>> + MaybeSend {
        async move { self.apply(Operation::Reset { policy, keys }).await?.done() }
    }
}

impl<L: Limiter + ?Sized> LimiterExt for L {}
