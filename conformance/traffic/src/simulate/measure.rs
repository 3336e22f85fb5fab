//! How a design's admissions compare with the limit.

use std::collections::VecDeque;

use tidegate_core::algorithm::Algorithm as _;
use tidegate_core::{Check, Error, Key, MemoryLimiter, Policy, Rule, UnixMillis};

/// What one client was admitted beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// The fewest requests without which no interval has more than the limit allows.
    pub(super) over: u64,
    /// The most admissions in an interval of the limit's own length.
    pub(super) worst: u64,
}

/// Compares admissions, in microseconds and in the order of their times, with a policy: with the quota that they exceed most, and
/// with the first one's interval.
pub(super) fn excess_of(policy: &Policy, admitted: &[u64]) -> Excess {
    let mut each = policy.quotas().iter().map(|quota| excess(quota.rule(), admitted));
    let first = each.next().unwrap_or_default();
    Excess { over: each.map(|excess| excess.over).fold(first.over, u64::max), ..first }
}

/// Compares admissions with a rule.
pub(super) fn excess(rule: &Rule, admitted: &[u64]) -> Excess {
    match rule {
        Rule::LeakyBucket(queue) => excess(&Rule::TokenBucket(*queue.bucket()), admitted),
        Rule::FixedWindow(rule) => fixed(admitted, rule.window().get() * 1_000, rule.limit()),
        Rule::TokenBucket(rule) => {
            bucket(admitted, rule.capacity(), rule.refill(), rule.per().get() * 1_000, rule.limit())
        }
        other => rolling(admitted, other.window().get() * 1_000, other.limit()),
    }
}

/// Windows that begin at multiples of their length.
fn fixed(admitted: &[u64], window_us: u64, limit: u64) -> Excess {
    let mut excess = Excess::default();
    for window in admitted.chunk_by(|a, b| a / window_us == b / window_us) {
        let count = window.len() as u64;
        excess.over += count.saturating_sub(limit);
        excess.worst = excess.worst.max(count);
    }
    excess
}

/// Any window.
fn rolling(admitted: &[u64], window_us: u64, limit: u64) -> Excess {
    let (mut excess, mut kept, mut all) = (Excess::default(), VecDeque::new(), VecDeque::new());
    for at in admitted.iter().copied() {
        for times in [&mut kept, &mut all] {
            while times.front().is_some_and(|first| first + window_us <= at) {
                times.pop_front();
            }
        }
        all.push_back(at);
        excess.worst = excess.worst.max(all.len() as u64);
        if (kept.len() as u64) < limit {
            kept.push_back(at);
        } else {
            excess.over += 1;
        }
    }
    excess
}

/// A level that drains. In units of a request times the period, so that whole numbers suffice.
fn bucket(admitted: &[u64], capacity: u64, refill: u64, per_us: u64, limit: u64) -> Excess {
    let (unit, full) = (u128::from(per_us), u128::from(capacity) * u128::from(per_us));
    let (mut over, mut level, mut last) = (0, 0_u128, admitted.first().copied().unwrap_or_default());
    for at in admitted.iter().copied() {
        level = level.saturating_sub(u128::from(at.saturating_sub(last)) * u128::from(refill));
        last = at;
        if level + unit <= full {
            level += unit;
        } else {
            over += 1;
        }
    }
    let fills_us = (capacity * per_us).div_ceil(refill.max(1));
    Excess { over, worst: rolling(admitted, fills_us, limit).worst }
}

/// How many requests of a client the reference admits.
pub(super) fn reference(policy: &Policy, key: &Key, arrivals: &[u64]) -> Result<u64, Error> {
    let exact = MemoryLimiter::with_shards(1);
    let mut admitted = 0;
    for at in arrivals {
        let decision = exact.decide(Check::new(policy, key, UnixMillis::new(at / 1_000)))?;
        admitted += u64::from(decision.is_allowed());
    }
    Ok(admitted)
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Millis, Quota};

    use super::{Excess, excess};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn what_the_limit_allows_is_no_excess_and_one_more_is() {
        let at = |times: &[u64]| times.iter().map(|tenth| tenth * SECOND / 10).collect::<Vec<_>>();
        let minute = Millis::from_secs(1);
        let window = Quota::fixed_window(2, minute).expect("a quota");
        assert_eq!(excess(window.rule(), &at(&[8, 9, 10, 11])), Excess { over: 0, worst: 2 });
        assert_eq!(excess(window.rule(), &at(&[7, 8, 9, 10])), Excess { over: 1, worst: 3 });
        let log = Quota::sliding_log(2, minute).expect("a quota");
        assert_eq!(excess(log.rule(), &at(&[8, 9, 10, 11])), Excess { over: 2, worst: 4 });
        assert_eq!(excess(log.rule(), &at(&[0, 5, 10, 15])), Excess { over: 0, worst: 2 });
        // Two at once, and one each half second.
        let bucket = Quota::token_bucket(2, 2, minute).expect("a quota");
        assert_eq!(excess(bucket.rule(), &at(&[0, 0, 5, 10])), Excess { over: 0, worst: 3 });
        assert_eq!(excess(bucket.rule(), &at(&[0, 0, 4, 10])).over, 1);
        assert_eq!(excess(bucket.rule(), &[]), Excess::default());
    }
}
