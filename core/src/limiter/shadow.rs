//! A proposed limit on the traffic of the current one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Capabilities, Check, Limiter, Operation, Reply};
use crate::policy::CurrentPolicies;
use crate::{Decision, Error, Policy};

/// Tries a proposed limit on the traffic of the current one, and counts the differences. Only the current limit decides.
///
/// A check by a policy of the proposal's name is made again by the proposal, on counts of its own. So each such check takes
/// two calls to the store, one after the other, and the proposal's is never decided from a loan. A failure of the second is
/// counted, and not returned. If the proposal counts by a dimension that the current policy lacks, it fails: it has no key.
///
/// ```
/// use tidegate_core::{Check, Key, LimiterExt, MemoryLimiter, Millis, Policy, Quota, Shadow, UnixMillis};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// # pollster::block_on(async {
/// let of = |limit| Policy::new("api", [Quota::fixed_window(limit, Millis::from_secs(60))?]);
/// let (current, limiter) = (of(10)?, Shadow::new(MemoryLimiter::new(), of(7)?));
/// let (key, now) = (Key::new("ip:192.0.2.1"), UnixMillis::new(0));
/// for _ in 0..12 {
///     limiter.check(Check::new(&current, &key, now)).await?;
/// }
/// let counts = limiter.counts();
/// assert_eq!((counts.both_admit, counts.only_proposal_denies, counts.both_deny), (7, 3, 2));
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug)]
pub struct Shadow<L> {
    limiter: L,
    /// By the name of the current policy, with counts of its own.
    proposal: Arc<Policy>,
    current: CurrentPolicies,
    name: Box<str>,
    counts: [AtomicU64; 5],
}

/// How often a proposal would have decided differently; see [`Shadow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShadowCounts {
    /// Checks that both admit.
    pub both_admit: u64,
    /// Checks that both deny.
    pub both_deny: u64,
    /// Checks that the proposal would newly deny.
    pub only_proposal_denies: u64,
    /// Checks that the proposal would newly admit.
    pub only_current_denies: u64,
    /// Checks of the proposal that failed.
    pub failed: u64,
}

impl<L: Limiter> Shadow<L> {
    /// A limiter that tries `proposal` on checks by a policy of the same name.
    pub fn new(limiter: L, proposal: Policy) -> Self {
        let name = proposal.name().into();
        let proposal = Arc::new(proposal.with_own_counts("~"));
        Self { limiter, proposal, current: CurrentPolicies::default(), name, counts: Default::default() }
    }

    /// The differences so far.
    pub fn counts(&self) -> ShadowCounts {
        let [both_admit, both_deny, only_proposal_denies, only_current_denies, failed] =
            self.counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        ShadowCounts { both_admit, both_deny, only_proposal_denies, only_current_denies, failed }
    }

    fn count(&self, current: &Decision, proposed: Result<Reply, Error>) {
        let proposed = proposed.and_then(Reply::decision);
        let place = match (current.is_allowed(), proposed.map(|proposed| proposed.is_allowed())) {
            (true, Ok(true)) => 0,
            (false, Ok(false)) => 1,
            (true, Ok(false)) => 2,
            (false, Ok(true)) => 3,
            (_, Err(_)) => 4,
        };
        self.counts[place].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the proposal counts by a dimension of which a check by this policy has no key.
    fn lacks_key(&self, policy: &Policy) -> bool {
        let has = |name: &str| policy.dimensions().iter().any(|dimension| dimension.name() == name);
        !self.proposal.dimensions().iter().all(|dimension| has(dimension.name()))
    }

    fn proposal(&self, operation: &Operation<'_>) -> Option<Arc<Policy>> {
        let is_tried = *operation.policy().name() == *self.name;
        is_tried.then(|| self.current.at(&self.proposal, operation.now()))
    }
}

impl<L: Limiter> Limiter for Shadow<L> {
    fn capabilities(&self) -> Capabilities {
        self.limiter.capabilities().lends(false)
    }

    async fn apply(&self, operation: Operation<'_>) -> Result<Reply, Error> {
        if let Operation::Lend(..) = operation {
            return Err(operation.unsupported());
        }
        let reply = self.limiter.apply(operation).await;
        let proposal = self.proposal(&operation);
        let proposed = match (operation, &proposal) {
            (Operation::Peek(_), _) | (_, None) => return reply,
            (Operation::Check(_), _) if reply.is_err() => return reply,
            (Operation::Check(check), Some(policy)) => Operation::Check(Check { policy, lease: None, ..check }),
            (_, Some(policy)) => operation.with_policy(policy),
        };
        let proposed = match self.lacks_key(operation.policy()) {
            true => Err(Error::invalid("the proposal counts by a dimension that the policy lacks")),
            false => self.limiter.apply(proposed).await,
        };
        if let (Operation::Check(_), Ok(Reply::Decided(decision))) = (operation, &reply) {
            self.count(decision, proposed);
        }
        reply
    }
}
