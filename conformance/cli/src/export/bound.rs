//! How many requests a limit admits in a platform's window.

use tidegate_core::{Rule, UnixMillis};

/// How a platform counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// What came in one window, which may begin at any instant.
    Window,
    /// An estimate from the counts of the current and the previous window, of which the latter is weighted by the share that
    /// the sliding window overlaps.
    Estimate,
}

/// The largest count that a platform may have after requests that a quota all admits, at any alignment.
///
/// - In a [`Window`](Counting::Window) of length `T`, it is the quota's own maximum in any interval of `T`. A limit of 100 in each
///   minute admits 200 in a minute that begins at another instant.
/// - An [`Estimate`](Counting::Estimate) may be as large as the counts of both windows, as after a burst at the start of
///   each: the quota's maximum in `2 T`. For a bucket it is less. With the count `p` of the previous window, `c` of the
///   current one, `f` the share of it that has passed, and the bucket's capacity `b` and rate `r`:
///   `p + c <= b + r (1 + f) T` and `c <= b + r f T`, so the estimate `(1 - f) p + c = (1 - f) (p + c) + f c` is at most
///   `b + r T ((1 - f) (1 + f) + f f) = b + r T`.
///
/// ```
/// use tidegate::export::bound::{Counting, largest_count};
/// use tidegate_core::{Millis, Quota};
/// # fn main() -> Result<(), tidegate_core::Error> {
/// let minute = Quota::fixed_window(100, Millis::from_secs(60))?;
/// assert_eq!(largest_count(minute.rule(), 60, Counting::Window), 200);
/// assert_eq!(largest_count(minute.rule(), 60, Counting::Estimate), 300);
/// let bucket = Quota::token_bucket(20, 10, Millis::from_secs(1))?;
/// assert_eq!(largest_count(bucket.rule(), 60, Counting::Window), 20 + 599);
/// assert_eq!(largest_count(bucket.rule(), 60, Counting::Estimate), 20 + 600);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn largest_count(rule: &Rule, period_s: u64, counting: Counting) -> u64 {
    let period_ms = period_s.saturating_mul(1_000);
    match (counting, rule) {
        (Counting::Window, _) => most(rule, period_ms),
        (Counting::Estimate, Rule::TokenBucket(_) | Rule::LeakyBucket(_)) => {
            let [capacity, per_ms, refill] = rule.parameters();
            let refilled = (u128::from(period_ms) * u128::from(refill)).div_ceil(u128::from(per_ms.max(1)));
            u64::try_from(refilled).unwrap_or(u64::MAX).saturating_add(capacity)
        }
        (Counting::Estimate, _) => most(rule, period_ms.saturating_mul(2)),
    }
}

/// The quota's maximum in an interval of this length, at the worst alignment: it begins in the last millisecond of a window.
fn most(rule: &Rule, length_ms: u64) -> u64 {
    let first = UnixMillis::new(rule.window().get().saturating_sub(1));
    let last = UnixMillis::new(first.get().saturating_add(length_ms.saturating_sub(1)));
    rule.maximum(first, last)
}
