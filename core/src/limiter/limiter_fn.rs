use super::{Capabilities, Limiter, MaybeSend, MaybeSync, Operation, Reply};
use crate::Error;

/// A [`Limiter`] from a function that replies at once, for tests of what is around a limiter. It has the given capabilities.
///
/// ```
/// use tidegate_core::{
///     Capabilities, Check, Error, ErrorKind, Fallback, Key, LimiterExt, Millis, Origin, Policy, Quota, UnixMillis, limiter_fn,
/// };
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let down = limiter_fn(Capabilities::EXACT, |_| Err(Error::new(ErrorKind::Unavailable, "down")));
/// let limiter = Fallback::new(down, 10)?;
/// let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
/// let key = Key::new("ip:192.0.2.1");
/// assert_eq!(limiter.check(Check::new(&policy, &key, UnixMillis::new(0))).await?.origin(), Origin::Fallback);
/// # Ok(())
/// # })
/// # }
/// ```
pub fn limiter_fn<F>(capabilities: Capabilities, apply: F) -> impl Limiter
where
    F: Fn(Operation<'_>) -> Result<Reply, Error> + MaybeSend + MaybeSync,
{
    LimiterFn { capabilities, apply }
}

struct LimiterFn<F> {
    capabilities: Capabilities,
    apply: F,
}

impl<F> Limiter for LimiterFn<F>
where
    F: Fn(Operation<'_>) -> Result<Reply, Error> + MaybeSend + MaybeSync,
{
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        (self.apply)(operation)
    }
}
