//! Policies that differ from the requested one.

use tidegate_core::algorithm::{Algorithm as _, CalendarWindow, Concurrency, Penalty};
use tidegate_core::{Millis, Policy, Quota, Rule};

/// Changes every quota. Returns the policy unchanged if the result would be invalid.
fn with(policy: &Policy, change: impl Fn(&Quota) -> Option<Quota>) -> Policy {
    let quotas = policy.quotas().iter().map(|quota| {
        let changed = change(quota).and_then(|changed| changed.named(quota.name()).ok());
        let changed = changed.map(|changed| match quota.dimension() {
            "" => changed,
            dimension => changed.by(dimension).unwrap_or_else(|_| quota.clone()),
        });
        changed.unwrap_or_else(|| quota.clone())
    });
    let changed = Policy::new(policy.name(), quotas.collect::<Vec<_>>()).and_then(|changed| match policy.group() {
        Some(group) => changed.group_by(group.name()),
        None => Ok(changed),
    });
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
    let interval = |refill: u64, per: Millis| Millis::new((per.get() / refill).max(1));
    with(policy, |quota| match quota.rule() {
        Rule::TokenBucket(rule) => Quota::token_bucket(rule.capacity(), 1, interval(rule.refill(), rule.per())).ok(),
        Rule::LeakyBucket(rule) => {
            let bucket = rule.bucket();
            Quota::leaky_bucket(bucket.capacity(), 1, interval(bucket.refill(), bucket.per())).ok()
        }
        _ => None,
    })
}

/// Replaces the lifetime of slots by a year.
pub(super) fn held_for_a_year(policy: &Policy) -> Policy {
    with(policy, |quota| match quota.rule() {
        Rule::Concurrency(rule) => {
            let changed = Concurrency::new(quota.rule().limit(), Penalty::MAX_CAP).ok()?;
            Some(Rule::Concurrency(changed.returns_cost(rule.returns())).into())
        }
        _ => None,
    })
}

/// Replaces the caps of penalties by the largest one.
pub(super) fn without_cap(policy: &Policy) -> Policy {
    with(policy, |quota| match quota.rule() {
        Rule::Penalty(rule) if !rule.punishes() => Quota::block(Penalty::MAX_CAP).ok(),
        Rule::Penalty(rule) => Quota::penalty(rule.base(), rule.factor(), Penalty::MAX_CAP).ok(),
        _ => None,
    })
}

/// Lets calendar windows carry nothing over.
pub(super) fn without_carry(policy: &Policy) -> Policy {
    with(policy, |quota| match quota.rule() {
        Rule::CalendarWindow(rule) => {
            let changed = CalendarWindow::new(rule.limit(), rule.start(), rule.window(), rule.next_window(), 0);
            changed.ok().map(|changed| Rule::CalendarWindow(changed).into())
        }
        _ => None,
    })
}

/// Replaces calendar windows between `least` and `most` days by windows of `days`.
pub(super) fn of_equal_length(policy: &Policy, least: u64, most: u64, days: u64) -> Policy {
    let of = |days: u64| Millis::from_secs(86_400 * days);
    with(policy, |quota| match quota.rule() {
        Rule::CalendarWindow(rule) if (of(least)..=of(most)).contains(&rule.window()) => {
            let changed = CalendarWindow::new(rule.limit(), rule.start(), of(days), of(days), rule.carry_over());
            changed.ok().map(|changed| Rule::CalendarWindow(changed).into())
        }
        _ => None,
    })
}

/// Returns a policy for each dimension.
pub(super) fn by_dimension(policy: &Policy) -> Vec<Policy> {
    let parts = policy.dimensions().iter().map(|dimension| {
        let part = Policy::new(policy.name(), policy.quotas()[dimension.quotas()].to_vec());
        part.map(|part| part.charge_denied(policy.charges_denied()))
    });
    parts.collect::<Result<_, _>>().unwrap_or_else(|_| vec![policy.clone()])
}

/// Returns a policy for each quota. A penalty cannot be apart from the quotas whose denials it counts, nor a balance from the quota that
/// it covers.
pub(super) fn alone(policy: &Policy) -> Vec<Policy> {
    if policy.quotas().iter().any(|quota| matches!(quota.rule(), Rule::Penalty(_) | Rule::Balance(_))) {
        return vec![policy.clone()];
    }
    let one = |quota: &Quota| Policy::new(policy.name(), [quota.clone()]).unwrap_or_else(|_| policy.clone());
    policy.quotas().iter().map(one).collect()
}
