//! The report of a fixture on a target.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Cause;
use crate::judge::{Tally, Verdict};
use crate::operation::Operations;

/// The report of a fixture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixtureReport {
    /// The id of the fixture.
    pub id: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The first of the reasons why it did not pass.
    #[serde(default)]
    pub reason: Option<String>,
    /// Every reason why it did not pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// The smallest fixture that was found to fail in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest: Option<Counterexample>,
    /// What cannot do it, if the fixture is unsupported or unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The number of checks offered.
    pub offered: u64,
    /// The number of checks admitted.
    pub admitted: u64,
    /// The number of checks that were answered with an error.
    #[serde(default)]
    pub errors: u64,
    /// The number of checks that an exact limiter admits.
    #[serde(default)]
    pub exact: u64,
    /// The fewest checks that had to be admitted.
    pub floor: u64,
    /// The most checks that could be admitted.
    pub ceiling: u64,
    /// Whether more checks than the ceiling were offered.
    pub ceiling_tested: bool,
    /// The round trips per decision, measured at the store, if they can be measured.
    pub round_trips: Option<f64>,
    /// The number of decisions: the requests other than resets.
    #[serde(default)]
    pub decisions: u64,
    /// The operations at the store, if they are counted.
    #[serde(default, skip_serializing_if = "Operations::is_empty")]
    pub operations: Operations,
    /// The most requests that were in flight at the same time.
    #[serde(default)]
    pub in_flight_peak: u64,
    /// The duration of the replay.
    pub elapsed_ms: u64,
    /// How long the answers took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<Latency>,
    /// The answers to each step. It is empty if they are those of the reference, which an exact target gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Tally>,
}

/// A fixture that fails, reduced as far as it still fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counterexample {
    /// The fixture, in the form of a fixture's file.
    pub fixture: Value,
    /// Why it fails.
    pub reason: String,
}

/// How long the answers to a fixture took, in microseconds. The requests of a burst wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: u64,
    /// The value that 99 % do not exceed.
    pub p99: u64,
    /// The longest.
    pub max: u64,
}

impl Latency {
    /// Returns the nearest-rank quantiles, or `None` without a sample.
    #[must_use]
    pub fn of(samples: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<u64> = samples.iter().map(microseconds).collect();
        sorted.sort_unstable();
        let quantile = |percent: usize| {
            let rank = (sorted.len() * percent).div_ceil(100).max(1);
            sorted.get(rank - 1).copied()
        };
        Some(Self { p50: quantile(50)?, p99: quantile(99)?, max: quantile(100)? })
    }
}

pub(super) fn microseconds(duration: &Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl FixtureReport {
    /// Creates the report of a fixture that was not judged by bounds.
    #[must_use]
    pub fn new(id: &str, verdict: Verdict) -> Self {
        Self {
            id: id.into(),
            verdict,
            reason: None,
            reasons: Vec::new(),
            smallest: None,
            cause: None,
            offered: 0,
            admitted: 0,
            errors: 0,
            exact: 0,
            floor: 0,
            ceiling: 0,
            ceiling_tested: false,
            round_trips: None,
            decisions: 0,
            operations: Operations::new(),
            in_flight_peak: 0,
            elapsed_ms: 0,
            latency_us: None,
            steps: Vec::new(),
        }
    }

    pub(crate) fn because(self, reason: &str) -> Self {
        self.for_reasons(vec![reason.into()])
    }

    pub(crate) fn for_reasons(self, reasons: Vec<String>) -> Self {
        Self { reason: reasons.first().cloned(), reasons, ..self }
    }

    pub(crate) fn caused(self, cause: Cause) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// The number of checks admitted beyond what an exact limiter admits.
    #[must_use]
    pub const fn drift(&self) -> u64 {
        self.admitted.saturating_sub(self.exact)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Latency;

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<Duration> = (1..=200).rev().map(Duration::from_micros).collect();
        assert_eq!(Latency::of(&samples), Some(Latency { p50: 100, p99: 198, max: 200 }));
        assert_eq!(Latency::of(&samples[..1]), Some(Latency { p50: 200, p99: 200, max: 200 }));
        assert_eq!(Latency::of(&[]), None);
    }
}
