//! Instants, keys and policies.

use tidegate_core::{Error, Key, Millis, Policy, Quota, UnixMillis};

/// An instant at which a window of any usual length starts.
pub const NOW: UnixMillis = UnixMillis::new(1_800_000_000_000);

/// A second.
pub const SECOND: Millis = Millis::from_secs(1);

/// A minute.
pub const MINUTE: Millis = Millis::from_secs(60);

/// So many milliseconds after [`NOW`].
#[must_use]
pub fn at(ms: u64) -> UnixMillis {
    NOW + Millis::new(ms)
}

/// The key of a client.
#[must_use]
pub fn key() -> Key {
    Key::new("ip:192.0.2.1")
}

/// A policy of one quota.
#[must_use]
pub fn policy(quota: Result<Quota, Error>) -> Policy {
    policy_of([quota])
}

/// A policy of several quotas.
#[must_use]
pub fn policy_of<const N: usize>(quotas: [Result<Quota, Error>; N]) -> Policy {
    Policy::new("api", quotas.map(Result::unwrap)).unwrap()
}

/// So many requests in each minute.
#[must_use]
pub fn per_minute(limit: u64) -> Policy {
    named_per_minute("api", limit)
}

/// The same, with another name.
#[must_use]
pub fn named_per_minute(name: &str, limit: u64) -> Policy {
    Policy::new(name, [Quota::fixed_window(limit, MINUTE).unwrap()]).unwrap()
}

/// A token bucket that gets one token back in each minute.
#[must_use]
pub fn bucket(capacity: u64) -> Policy {
    policy(Quota::token_bucket(capacity, 1, MINUTE))
}

/// A policy for each algorithm that counts, with one quota. Buckets are refilled by `refill` in each `span`.
#[must_use]
pub fn of_each_algorithm(limit: u64, refill: u64, span: Millis) -> [Policy; 5] {
    [
        Quota::fixed_window(limit, span),
        Quota::sliding_window(limit, span),
        Quota::sliding_log(limit, span),
        Quota::token_bucket(limit, refill, span),
        Quota::leaky_bucket(limit, refill, span),
    ]
    .map(policy)
}
