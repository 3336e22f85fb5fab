//! How a design's admissions compare with the limit.

use tidegate_core::algorithm::TokenBucket;
use tidegate_core::{Check, Error, Key, MemoryLimiter, Policy, Rule, UnixMillis};

/// What one client was admitted beyond the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Excess {
    /// Those of the admissions that an exact limiter would have denied, if there had been no other requests.
    pub(super) over: u64,
    /// The most admissions in an interval of the first quota's length.
    pub(super) worst: u64,
}

/// Compares admissions, in microseconds and in the order of their times, with a policy.
pub(super) fn excess(policy: &Policy, key: &Key, admitted: &[u64]) -> Result<Excess, Error> {
    let within = reference(policy, key, admitted)?;
    let worst = policy.quotas().first().map_or(0, |quota| worst(quota.rule(), admitted));
    Ok(Excess { over: (admitted.len() as u64).saturating_sub(within), worst })
}

/// The most in a window that begins at a multiple of its length, in any other window, or in the time in which a bucket fills.
fn worst(rule: &Rule, admitted: &[u64]) -> u64 {
    let window_us = match rule {
        Rule::FixedWindow(rule) => {
            let window_us = rule.window().get() * 1_000;
            let windows = admitted.chunk_by(|a, b| a / window_us == b / window_us);
            return windows.map(<[u64]>::len).max().unwrap_or_default() as u64;
        }
        Rule::TokenBucket(bucket) => fills_us(bucket),
        Rule::LeakyBucket(queue) => fills_us(queue.bucket()),
        other => other.window().get() * 1_000,
    };
    let (mut worst, mut first) = (0, 0);
    for (nth, at) in admitted.iter().enumerate() {
        while admitted[first].saturating_add(window_us) <= *at {
            first += 1;
        }
        worst = worst.max(nth + 1 - first);
    }
    worst as u64
}

fn fills_us(bucket: &TokenBucket) -> u64 {
    let us = u128::from(bucket.capacity()) * u128::from(bucket.per().get()) * 1_000;
    u64::try_from(us.div_ceil(u128::from(bucket.refill()))).unwrap_or(u64::MAX)
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
    use tidegate_core::{Key, Millis, Policy, Quota};

    use super::{Excess, excess};

    const SECOND: u64 = 1_000_000;

    #[test]
    fn what_the_limit_allows_is_no_excess_and_one_more_is() {
        let of = |quotas: &[&Quota], tenths: &[u64]| {
            let at: Vec<u64> = tenths.iter().map(|tenth| tenth * SECOND / 10).collect();
            excess(&Policy::new("p", quotas.iter().copied().cloned()).expect("a policy"), &Key::new("k"), &at)
                .expect("measured")
        };
        let second = Millis::from_secs(1);
        let window = Quota::fixed_window(2, second).expect("a quota");
        assert_eq!(of(&[&window], &[8, 9, 10, 11]), Excess { over: 0, worst: 2 });
        assert_eq!(of(&[&window], &[7, 8, 9, 10]), Excess { over: 1, worst: 3 });
        let log = Quota::sliding_log(2, second).expect("a quota");
        assert_eq!(of(&[&log], &[8, 9, 10, 11]), Excess { over: 2, worst: 4 });
        assert_eq!(of(&[&log], &[0, 5, 10, 15]), Excess { over: 0, worst: 2 });
        // Two at once, and one each half second.
        let bucket = Quota::token_bucket(2, 2, second).expect("a quota");
        assert_eq!(of(&[&bucket], &[0, 0, 5, 10]), Excess { over: 0, worst: 3 });
        assert_eq!(of(&[&bucket], &[0, 0, 4, 10]).over, 1);
        // Two counters are held to their own estimate, which admits 3 of 2 in some seconds.
        let counters = Quota::sliding_window(2, second).expect("a quota");
        assert_eq!(of(&[&counters], &[9, 9, 15, 20]), Excess { over: 0, worst: 3 });
        // The first second exceeds the one quota, and the next ones the other.
        let longer = Quota::fixed_window(3, Millis::from_secs(10)).expect("a quota");
        let both = [&window, &longer];
        assert_eq!(of(&both, &[0, 1, 2, 10, 11, 20]).over, 3);
        assert_eq!(of(&both, &[]), Excess::default());
    }
}
