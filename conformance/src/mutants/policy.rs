//! Policies that say something else than what was asked for.

use tidegate_core::{Policy, Quota, Rule};

/// The same policy with every rule changed; the policy itself where that would be none.
fn with(policy: &Policy, change: impl Fn(&Quota) -> Option<Quota>) -> Policy {
    let quotas = policy.quotas().iter().map(|quota| {
        let changed = change(quota).and_then(|changed| changed.named(quota.name()).ok());
        changed.unwrap_or_else(|| quota.clone())
    });
    let changed = Policy::new(policy.name(), quotas.collect::<Vec<_>>());
    changed.map_or_else(|_| policy.clone(), |changed| changed.charge_denied(policy.charges_denied()))
}

/// Every limit and capacity changed.
pub(super) fn limits(policy: &Policy, change: impl Fn(u64) -> u64) -> Policy {
    with(policy, |quota| quota.with_limit(change(quota.rule().limit())).ok())
}

/// Sliding windows and logs that are really fixed.
pub(super) fn fixed(policy: &Policy) -> Policy {
    with(policy, |quota| match quota.rule() {
        Rule::SlidingWindow(rule) => Quota::fixed_window(quota.rule().limit(), rule.window()).ok(),
        Rule::SlidingLog(rule) => Quota::fixed_window(quota.rule().limit(), rule.window()).ok(),
        _ => None,
    })
}

/// Buckets that gain one token every so many whole milliseconds, the fraction dropped.
pub(super) fn whole_intervals(policy: &Policy) -> Policy {
    let interval = |refill: u64, per: tidegate_core::Millis| tidegate_core::Millis::new((per.get() / refill).max(1));
    with(policy, |quota| match quota.rule() {
        Rule::TokenBucket(rule) => Quota::token_bucket(rule.capacity(), 1, interval(rule.refill(), rule.per())).ok(),
        Rule::LeakyBucket(rule) => {
            let bucket = rule.bucket();
            Quota::leaky_bucket(bucket.capacity(), 1, interval(bucket.refill(), bucket.per())).ok()
        }
        _ => None,
    })
}

/// Each quota as a policy of its own.
pub(super) fn alone(policy: &Policy) -> Vec<Policy> {
    let one = |quota: &Quota| Policy::new(policy.name(), [quota.clone()]).unwrap_or_else(|_| policy.clone());
    policy.quotas().iter().map(one).collect()
}
