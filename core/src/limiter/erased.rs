use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;

use super::{Answer, Block, Capabilities, Check, Limiter, MaybeSend, MaybeSync, Question, Refund, Settle};
use crate::{Decision, Error, Keys, Policy};

/// A boxed future of an [`ErasedLimiter`]: `Send` on native hosts, not on WebAssembly.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future of an [`ErasedLimiter`]: `Send` on native hosts, not on WebAssembly.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The object-safe form of [`Limiter`], for an application that selects its store at run time.
///
/// Every [`Limiter`] implements it. `Box<dyn ErasedLimiter>`, `Arc<dyn ErasedLimiter>` and `&dyn ErasedLimiter` implement
/// [`Limiter`], so callers use the methods of [`Limiter`] and do not need this trait in scope. Each call allocates one box
/// for its future.
///
/// ```
/// use tidegate_core::{Check, DenyCache, ErasedLimiter, Key, Limiter, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
///
/// fn open(deny_cache: bool) -> Box<dyn ErasedLimiter> {
///     let memory = MemoryLimiter::new();
///     if deny_cache { Box::new(DenyCache::new(memory)) } else { Box::new(memory) }
/// }
///
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let limiter = open(true);
/// let policy = Policy::new("api", [Quota::fixed_window(1, Millis::from_secs(1))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// assert!(limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// assert!(!limiter.check(Check::new(&policy, &key, now)).await?.is_allowed());
/// # Ok(())
/// # })
/// # }
/// ```
pub trait ErasedLimiter: MaybeSend + MaybeSync {
    /// See [`Limiter::capabilities`].
    fn erased_capabilities(&self) -> Capabilities;

    /// See [`Limiter::check`].
    fn erased_check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>>;

    /// See [`Limiter::lend`].
    fn erased_lend<'a>(&'a self, check: Check<'a>, question: Question) -> BoxFuture<'a, Result<Answer, Error>>;

    /// See [`Limiter::peek`].
    fn erased_peek<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>>;

    /// See [`Limiter::refund`].
    fn erased_refund<'a>(&'a self, refund: Refund<'a>) -> BoxFuture<'a, Result<(), Error>>;

    /// See [`Limiter::settle`].
    fn erased_settle<'a>(&'a self, settle: Settle<'a>) -> BoxFuture<'a, Result<Decision, Error>>;

    /// See [`Limiter::block`].
    fn erased_block<'a>(&'a self, block: Block<'a>) -> BoxFuture<'a, Result<(), Error>>;

    /// See [`Limiter::reset`].
    fn erased_reset<'a>(&'a self, policy: &'a Policy, keys: Keys<'a>) -> BoxFuture<'a, Result<(), Error>>;
}

impl<L: Limiter> ErasedLimiter for L {
    fn erased_capabilities(&self) -> Capabilities {
        self.capabilities()
    }

    fn erased_check<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.check(check))
    }

    fn erased_lend<'a>(&'a self, check: Check<'a>, question: Question) -> BoxFuture<'a, Result<Answer, Error>> {
        Box::pin(self.lend(check, question))
    }

    fn erased_peek<'a>(&'a self, check: Check<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.peek(check))
    }

    fn erased_refund<'a>(&'a self, refund: Refund<'a>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.refund(refund))
    }

    fn erased_settle<'a>(&'a self, settle: Settle<'a>) -> BoxFuture<'a, Result<Decision, Error>> {
        Box::pin(self.settle(settle))
    }

    fn erased_block<'a>(&'a self, block: Block<'a>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.block(block))
    }

    fn erased_reset<'a>(&'a self, policy: &'a Policy, keys: Keys<'a>) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(self.reset(policy, keys))
    }
}

impl Limiter for dyn ErasedLimiter + '_ {
    fn capabilities(&self) -> Capabilities {
        self.erased_capabilities()
    }

    async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.erased_check(check).await
    }

    async fn lend(&self, check: Check<'_>, question: Question) -> Result<Answer, Error> {
        self.erased_lend(check, question).await
    }

    async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
        self.erased_peek(check).await
    }

    async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
        self.erased_refund(refund).await
    }

    async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
        self.erased_settle(settle).await
    }

    async fn block(&self, block: Block<'_>) -> Result<(), Error> {
        self.erased_block(block).await
    }

    async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
        self.erased_reset(policy, keys).await
    }
}

/// Implements [`Limiter`] for a pointer to one.
macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<L: Limiter + ?Sized> Limiter for $pointer {
            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            async fn check(&self, check: Check<'_>) -> Result<Decision, Error> {
                (**self).check(check).await
            }

            async fn lend(&self, check: Check<'_>, question: Question) -> Result<Answer, Error> {
                (**self).lend(check, question).await
            }

            async fn peek(&self, check: Check<'_>) -> Result<Decision, Error> {
                (**self).peek(check).await
            }

            async fn refund(&self, refund: Refund<'_>) -> Result<(), Error> {
                (**self).refund(refund).await
            }

            async fn settle(&self, settle: Settle<'_>) -> Result<Decision, Error> {
                (**self).settle(settle).await
            }

            async fn block(&self, block: Block<'_>) -> Result<(), Error> {
                (**self).block(block).await
            }

            async fn reset(&self, policy: &Policy, keys: Keys<'_>) -> Result<(), Error> {
                (**self).reset(policy, keys).await
            }
        }
    )+};
}

forward!(&L, Box<L>, Arc<L>);
