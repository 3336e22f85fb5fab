use alloc::boxed::Box;
use alloc::sync::Arc;
use core::future::Future;
use core::pin::Pin;

use super::{Capabilities, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::{Check, Decision, Error};

/// A boxed future of an [`ErasedLimiter`]: `Send` on native hosts, not on WebAssembly.
#[cfg(not(target_arch = "wasm32"))]
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A boxed future of an [`ErasedLimiter`]: `Send` on native hosts, not on WebAssembly.
#[cfg(target_arch = "wasm32")]
pub(crate) type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The object-safe form of [`Limiter`], for an application that selects its store at run time.
///
/// Every [`Limiter`] implements it. `Box<dyn ErasedLimiter>`, `Arc<dyn ErasedLimiter>` and `&dyn ErasedLimiter` implement
/// [`Limiter`], so callers use the methods of [`LimiterExt`](crate::LimiterExt) and do not need this trait in scope. Each operation allocates one box
/// for its future, but a check that is decided [at once](Limiter::check_at_once).
///
/// ```
/// use tidegate_core::{Check, DenyCache, ErasedLimiter, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, UnixMillis};
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

    /// See [`Limiter::apply`].
    fn erased_apply<'a>(&'a self, operation: Operation<'a>) -> BoxFuture<'a, Result<Reply, Error>>;

    /// See [`Limiter::check_at_once`].
    fn erased_check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>>;
}

impl<L: Limiter> ErasedLimiter for L {
    fn erased_capabilities(&self) -> Capabilities {
        self.capabilities()
    }

    fn erased_apply<'a>(&'a self, operation: Operation<'a>) -> BoxFuture<'a, Result<Reply, Error>> {
        Box::pin(self.apply(operation))
    }

    fn erased_check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        self.check_at_once(check)
    }
}

impl Limiter for dyn ErasedLimiter + '_ {
    fn capabilities(&self) -> Capabilities {
        self.erased_capabilities()
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        self.erased_apply(operation).await
    }

    fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
        self.erased_check_at_once(check)
    }
}

/// Implements [`Limiter`] for a pointer to one.
macro_rules! forward {
    ($($pointer:ty),+) => {$(
        impl<L: Limiter + ?Sized> Limiter for $pointer {
            fn capabilities(&self) -> Capabilities {
                (**self).capabilities()
            }

            fn apply(&self, operation: Operation<'_>) -> impl Future<Output = Result<Reply, Error>> + MaybeSend {
                (**self).apply(operation)
            }

            fn check_at_once(&self, check: Check<'_>) -> Option<Result<Decision, Error>> {
                (**self).check_at_once(check)
            }
        }
    )+};
}

forward!(&L, Box<L>, Arc<L>);
