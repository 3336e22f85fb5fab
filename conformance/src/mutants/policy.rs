//! Policies that differ from the requested one.

use tidegate_core::{Policy, Quota, Rule};

/// Changes every quota. Returns the policy unchanged if the result would be invalid.
fn with(policy: &Policy, change: impl Fn(&Quota) -> Option<Quota>) -> Policy {
    let quotas = policy.quotas().iter().map(|quota| {
        let changed = change(quota).and_then(|changed| changed.named(quota.name()).ok());
        changed.unwrap_or_else(|| quota.clone())
    });
    let changed = Policy::new(policy.name(), quotas.collect::<Vec<_>>());
    changed.map_or_else(|_| policy.clone(), |changed| changed.charge_denied(policy.charges_denied()))
}

/// Changes every limit and capacity.
pub(super) fn limits(policy: &Policy, change: impl Fn(u64) -> u64) -> Policy {
    with(policy, |quota| quota.with_limit(change(quota.rule().limit())).ok())
}

/// Replaces sliding windows and logs by fixed windows.
pub(super) fn fixed(policy: &Policy) -> Policy {
    with(policy, |quota| match quota.rule() {
        Rule::SlidingWindow(rule) => Quota::fixed_window(quota.rule().limit(), rule.window()).ok(),
        Rule::SlidingLog(rule) => Quota::fixed_window(quota.rule().limit(), rule.window()).ok(),
        _ => None,
    })
}

/// Replaces the refill of buckets by one token per whole number of milliseconds, rounded down.
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

/// Returns a policy for each quota.
pub(super) fn alone(policy: &Policy) -> Vec<Policy> {
    let one = |quota: &Quota| Policy::new(policy.name(), [quota.clone()]).unwrap_or_else(|_| policy.clone());
    policy.quotas().iter().map(one).collect()
}
