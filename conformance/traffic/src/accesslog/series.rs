//! Admitted and denied requests over time.

use std::collections::BTreeMap;

use serde::Serialize;

use super::replay::Outcome;

/// The lengths of steps. Each is a multiple of the one before it.
const STEPS_MS: [u64; 9] = [1_000, 10_000, 60_000, 300_000, 900_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000];

/// The most steps in memory.
const MOST: usize = 4_096;

/// Counts requests in steps of time. The steps become longer as the time does, so the memory has a bound.
#[derive(Clone, Debug)]
pub struct Series {
    step_ms: u64,
    buckets: BTreeMap<u64, [u64; 3]>,
    /// The last bucket, which most requests are in, and what has to be added to it.
    last: (u64, [u64; 3]),
}

/// The counts of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// When it begins.
    pub from_ms: u64,
    /// The requests in it that no limit applies to.
    pub unlimited: u64,
    /// The requests that limits admitted in it.
    pub admitted: u64,
    /// The requests denied in it.
    pub denied: u64,
}

/// A series in a report. Steps without requests are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SeriesReport {
    /// The length of a step.
    pub step_ms: u64,
    /// The steps with requests, in their order.
    pub buckets: Vec<Bucket>,
}

impl Default for Series {
    fn default() -> Self {
        Self { step_ms: STEPS_MS[0], buckets: BTreeMap::new(), last: (0, [0; 3]) }
    }
}

const fn start(at_ms: u64, step_ms: u64) -> u64 {
    at_ms - at_ms % step_ms
}

/// The next longer step: twice the longest, if it was that.
fn longer(step_ms: u64) -> u64 {
    STEPS_MS.into_iter().find(|longer| *longer > step_ms).unwrap_or(step_ms * 2)
}

impl Series {
    /// Counts a request.
    pub fn add(&mut self, at_ms: u64, outcome: Outcome) {
        let start = start(at_ms, self.step_ms);
        if start != self.last.0 {
            self.flush();
            self.last.0 = self::start(at_ms, self.step_ms);
        }
        let place = match outcome {
            Outcome::Unlimited => 0,
            Outcome::Admitted => 1,
            Outcome::Denied(_) => 2,
        };
        self.last.1[place] += 1;
    }

    fn flush(&mut self) {
        let (start, counts) = std::mem::take(&mut self.last);
        if counts == [0; 3] {
            return;
        }
        let bucket = self.buckets.entry(start).or_default();
        bucket.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        while self.buckets.len() > MOST {
            self.step_ms = longer(self.step_ms);
            self.buckets = joined(&self.buckets, self.step_ms);
        }
    }

    /// The counts in at most about `most` steps.
    #[must_use]
    pub fn report(&self, most: usize) -> SeriesReport {
        let mut all = self.clone();
        all.flush();
        let (mut step_ms, mut buckets) = (all.step_ms, all.buckets);
        let span = |buckets: &BTreeMap<u64, [u64; 3]>| {
            let ends = buckets.keys().next().zip(buckets.keys().next_back());
            ends.map_or(0, |(first, last)| last - first)
        };
        while span(&buckets) / step_ms >= most.max(1) as u64 {
            step_ms = longer(step_ms);
            buckets = joined(&buckets, step_ms);
        }
        let buckets = buckets.into_iter().map(|(from_ms, [unlimited, admitted, denied])| Bucket {
            from_ms,
            unlimited,
            admitted,
            denied,
        });
        SeriesReport { step_ms, buckets: buckets.collect() }
    }
}

impl SeriesReport {
    /// The same counts in at most about `most` steps.
    #[must_use]
    pub(super) fn coarser(&self, most: usize) -> Self {
        let buckets = self
            .buckets
            .iter()
            .map(|bucket| (bucket.from_ms, [bucket.unlimited, bucket.admitted, bucket.denied]))
            .collect();
        Series { step_ms: self.step_ms.max(1), buckets, ..Series::default() }.report(most)
    }

    /// All steps from the first to the last with requests, also those without.
    pub(super) fn dense(&self) -> impl Iterator<Item = Bucket> {
        let mut buckets = self.buckets.iter().copied().peekable();
        let mut next_ms = self.buckets.first().map(|first| first.from_ms);
        std::iter::from_fn(move || {
            let from_ms = next_ms?;
            let after = buckets.peek()?;
            next_ms = from_ms.checked_add(self.step_ms);
            if after.from_ms > from_ms {
                Some(Bucket { from_ms, unlimited: 0, admitted: 0, denied: 0 })
            } else {
                buckets.next()
            }
        })
    }
}

fn joined(buckets: &BTreeMap<u64, [u64; 3]>, step_ms: u64) -> BTreeMap<u64, [u64; 3]> {
    let mut joined: BTreeMap<u64, [u64; 3]> = BTreeMap::new();
    for (at_ms, counts) in buckets {
        let bucket = joined.entry(start(*at_ms, step_ms)).or_default();
        bucket.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    joined
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_without_requests_are_shown_between_others() {
        let mut series = Series::default();
        let (admitted, denied) = (Outcome::Admitted, Outcome::Denied(0));
        for (at_ms, outcome) in
            [(5_000, admitted), (5_999, denied), (8_000, admitted), (5_500, admitted), (5_600, Outcome::Unlimited)]
        {
            series.add(at_ms, outcome);
        }
        let report = series.report(10);
        let dense: Vec<_> = report.dense().map(|bucket| (bucket.from_ms, bucket.admitted, bucket.denied)).collect();
        assert_eq!(dense, [(5_000, 2, 1), (6_000, 0, 0), (7_000, 0, 0), (8_000, 1, 0)]);
        assert_eq!(report.coarser(2).buckets, [Bucket { from_ms: 0, unlimited: 1, admitted: 3, denied: 1 }]);
        assert_eq!(Series::default().report(10).dense().count(), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn nothing_is_lost_and_the_number_of_steps_has_a_bound(
            times in proptest::collection::vec((0_u64..253_402_300_800_000, any::<bool>()), 0..6_000),
            most in 1_usize..300,
        ) {
            let mut series = Series::default();
            for (at_ms, is_denied) in &times {
                series.add(*at_ms, if *is_denied { Outcome::Denied(0) } else { Outcome::Admitted });
            }
            prop_assert!(series.buckets.len() <= MOST);
            let report = series.report(most);
            prop_assert!(report.dense().count() <= most + 1);
            let sum = |of: fn(&Bucket) -> u64| report.buckets.iter().map(of).sum::<u64>();
            let denied = times.iter().filter(|(_, is_denied)| *is_denied).count() as u64;
            prop_assert_eq!((sum(|one| one.admitted), sum(|one| one.denied)), (times.len() as u64 - denied, denied));
            for bucket in &report.buckets {
                prop_assert_eq!(bucket.from_ms % report.step_ms, 0);
            }
        }
    }
}
