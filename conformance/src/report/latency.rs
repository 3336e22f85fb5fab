//! The distribution of latencies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fixture::microseconds;

/// The number of answers whose latency is above the previous bucket's bound and at most this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// The bound in microseconds.
    pub up_to_us: u64,
    /// The number of answers.
    pub count: u64,
}

/// The bounds in each power of ten: the E6 series, of which each is about 1.5 times the previous one.
const SERIES: [u64; 6] = [10, 15, 22, 33, 47, 68];

impl Bucket {
    /// Counts the samples, and leaves empty buckets out.
    #[must_use]
    pub fn of(samples: &[Duration]) -> Vec<Self> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for sample in samples {
            *counts.entry(bound(microseconds(sample))).or_default() += 1;
        }
        counts.into_iter().map(|(up_to_us, count)| Self { up_to_us, count }).collect()
    }
}

/// The smallest bound that is not below this latency.
fn bound(latency_us: u64) -> u64 {
    let tens = std::iter::successors(Some(1_u64), |ten| ten.checked_mul(10));
    let mut bounds = tens.flat_map(|ten| SERIES.iter().map(move |first| first.saturating_mul(ten)));
    bounds.find(|bound| latency_us <= *bound).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Bucket, bound};

    #[test]
    fn a_sample_is_in_the_first_bucket_that_holds_it() {
        assert_eq!([0, 10, 11, 68, 69, 100, 101].map(bound), [10, 10, 15, 68, 100, 100, 150]);
        assert_eq!(bound(u64::MAX), u64::MAX);
        let counted = Bucket::of(&[5, 9, 100].map(Duration::from_micros));
        assert_eq!(counted, [Bucket { up_to_us: 10, count: 2 }, Bucket { up_to_us: 100, count: 1 }]);
    }
}
