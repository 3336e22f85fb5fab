//! A cheap limiter in front of a strict one.

use std::sync::Arc;

use super::{Capabilities, Check, Limiter, Operation, Reply};
use crate::policy::CurrentPolicies;
use crate::{Decision, Error, Origin, Policy};

/// Asks a cheap limiter first, such as the one of a location, and the strict one only about what that admits. So a flood does
/// not reach the store: a request that the first limiter denies costs the second nothing.
///
/// The first limiter counts by a policy of its own, with one dimension. Choose its limit above that of the second: what it
/// denies, the second may have admitted. A denial by the first has the [origin](Decision::origin) [`Origin::Near`], and no
/// counts of the second. If the store of the first fails, the second decides alone.
///
/// Checks with an idempotency token go to the second only, because a retry must get the first answer. So do refunds, settlements
/// and blocks.
///
/// ```
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Origin, Policy, Quota, Tiered, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// # let (location, store) = (MemoryLimiter::new(), MemoryLimiter::new());
/// let flood = Policy::new("flood", [Quota::fixed_window(20, Millis::from_secs(10))?])?;
/// let limiter = Tiered::new(location, flood, store)?;
/// let policy = Policy::new("api", [Quota::fixed_window(5, Millis::from_secs(60))?])?;
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// let mut last = None;
/// for _ in 0..30 {
///     last = Some(limiter.check(Check::new(&policy, &key, now)).await?.origin());
/// }
/// assert_eq!(last, Some(Origin::Near));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Tiered<N, F> {
    near: N,
    policy: Arc<Policy>,
    current: CurrentPolicies,
    far: F,
}

impl<N: Limiter, F: Limiter> Tiered<N, F> {
    /// A limiter that asks `near` by `policy`, and then `far` by the policy of each check.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if `near` lacks a feature that the policy needs, and
    /// [`Invalid`](crate::ErrorKind::Invalid) if the policy has several dimensions or a concurrency limit.
    pub fn new(near: N, policy: Policy, far: F) -> Result<Self, Error> {
        near.capabilities().supports_policy(&policy)?;
        if policy.dimensions().len() > 1 || policy.has_slots() {
            return Err(Error::invalid("policy: write one dimension and no concurrency limit for the first tier"));
        }
        Ok(Self { near, policy: Arc::new(policy), current: CurrentPolicies::default(), far })
    }

    /// The denial of the first limiter.
    fn denied(&self, check: &Check<'_>, reply: Result<Reply, Error>) -> Result<Option<Decision>, Error> {
        match reply.and_then(Reply::decision) {
            Ok(decision) if decision.is_allowed() => Ok(None),
            Ok(decision) => Ok(Some(decision.without_counts(check.policy).with_origin(Origin::Near))),
            Err(error) if error.kind().is_store_failure() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the first limiter is asked, if anything.
    fn near<'a>(&self, policy: &'a Policy, operation: &Operation<'a>) -> Result<Option<Operation<'a>>, Error> {
        let can = self.near.capabilities();
        let near_check = |check: &Check<'a>| {
            let cost = if can.costs { check.cost } else { 1 };
            Ok::<_, Error>(Check::new(policy, check.keys.single(policy)?, check.now).cost(cost))
        };
        Ok(match operation {
            Operation::Check(check) if check.idempotency.is_none() => Some(Operation::Check(near_check(check)?)),
            Operation::Peek(check) if check.idempotency.is_none() && can.peek => {
                Some(Operation::Peek(near_check(check)?))
            }
            Operation::Reset { keys, .. } if can.reset => Some(Operation::Reset { policy, keys: *keys }),
            _ => None,
        })
    }
}

impl<N: Limiter, F: Limiter> Limiter for Tiered<N, F> {
    /// Those of the second limiter. The first may deny early, so there is no least number of admissions.
    fn capabilities(&self) -> Capabilities {
        let can = self.far.capabilities();
        can.accuracy(can.accuracy.without_floor()).lends(false)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Lend(..) = operation {
            return Err(operation.unsupported());
        }
        let policy = self.current.at(&self.policy, operation.now());
        if let Some(near) = self.near(&policy, &operation)? {
            let reply = self.near.apply(near).await;
            if let Operation::Check(check) | Operation::Peek(check) = operation {
                if let Some(denial) = self.denied(&check, reply)? {
                    return Ok(denial.into());
                }
            } else {
                reply?;
            }
        }
        self.far.apply(operation).await
    }
}
