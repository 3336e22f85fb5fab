//! The report of a limiter, and of each fixture.

mod fixture;
mod latency;

pub use fixture::{Counterexample, FixtureReport, Latency};
pub use latency::Bucket;

use serde::{Deserialize, Serialize};
use tidegate_core::Accuracy;

use crate::judge::Verdict;
use crate::operation::{self, Cost, Operations, PerDecision};

/// The report of a target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// The name of the target.
    pub name: String,
    /// `exact`, `approximate` or `per_location`.
    pub class: String,
    /// The class with its formula, as text.
    #[serde(default)]
    pub accuracy: String,
    /// The result.
    pub status: Status,
    /// Why the target did not pass.
    pub reason: Option<String>,
    /// The platform's JavaScript runtime, by WinterTC's runtime key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The program that emulated the platform.
    pub emulator: Option<Emulator>,
    /// The duration, without building and starting.
    #[serde(default)]
    pub elapsed_ms: u64,
    /// How long the answers to all fixtures took.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<Bucket>,
    /// The operations per decision, over all fixtures in which they are counted.
    #[serde(default, skip_serializing_if = "PerDecision::is_empty")]
    pub operations: PerDecision,
    /// What a decision of this mix costs, if the platform's prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The report of each fixture.
    pub fixtures: Vec<FixtureReport>,
}

/// The program that emulates a platform.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Emulator {
    /// The name of the program.
    pub name: String,
    /// The version of the program.
    pub version: String,
}

/// What cannot do, or cannot show, what a fixture asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The platform cannot do it.
    Platform,
    /// The adapter does not do it, although the platform could.
    Adapter,
    /// The emulator, or virtual time, cannot show it.
    Emulator,
}

/// The result of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing failed.
    Pass,
    /// The answers are well-formed, but the emulator cannot show how many requests the platform admits.
    Unverified,
    /// The target supports none of the fixtures, and says so.
    NotApplicable,
    /// The emulator is not installed.
    Unavailable,
    /// Something failed, or nothing ran.
    Fail,
}

impl TargetReport {
    /// Creates the report of a target on which nothing has run yet.
    #[must_use]
    pub fn new(name: &str, accuracy: &Accuracy) -> Self {
        Self {
            name: name.into(),
            class: accuracy.name().into(),
            accuracy: accuracy.to_string(),
            status: Status::Pass,
            reason: None,
            runtime: None,
            emulator: None,
            elapsed_ms: 0,
            latency: Vec::new(),
            operations: PerDecision::new(),
            cost: None,
            fixtures: Vec::new(),
        }
    }

    /// Sets the status, and why it is not [`Status::Pass`].
    #[must_use]
    pub fn ended(self, status: Status, reason: String) -> Self {
        Self { status, reason: Some(reason), ..self }
    }

    /// Asserts that the target passed.
    ///
    /// # Panics
    /// Panics if the target did not pass. The message lists each failed fixture and its reasons.
    pub fn assert_passed(&self) {
        let failed = self.fixtures.iter().filter(|one| one.verdict == Verdict::Fail);
        let failed: String = failed.map(|one| format!("\n  {}: {}", one.id, one.reasons.join("; "))).collect();
        let reason = self.reason.as_deref().unwrap_or_default();
        assert!(self.status == Status::Pass, "{} did not pass: {reason}{failed}", self.name);
    }

    /// Sets the status from the fixtures' verdicts. `stub` says why the emulator cannot show what the platform admits.
    #[must_use]
    pub fn concluded(self, accuracy: &Accuracy, stub: Option<&str>) -> Self {
        let count = |verdict| self.fixtures.iter().filter(|one| one.verdict == verdict).count();
        let (failed, passed) = (count(Verdict::Fail), count(Verdict::Pass));
        let could_break = self.fixtures.iter().any(|one| one.verdict == Verdict::Pass && one.ceiling_tested);
        if failed > 0 {
            let reason = format!("{failed} of {} fixtures failed", self.fixtures.len());
            self.ended(Status::Fail, reason)
        } else if self.fixtures.is_empty() {
            self.ended(Status::Fail, "no fixture tested the limiter".into())
        } else if let Some(reason) = stub {
            self.ended(Status::Unverified, reason.into())
        } else if passed == 0 {
            let untold = self.fixtures.iter().find(|one| one.verdict == Verdict::Unverified);
            match untold.map(|one| one.reason.clone().unwrap_or_default()) {
                Some(reason) => self.ended(Status::Unverified, reason),
                None => self.ended(Status::NotApplicable, "it declares that it supports none of the fixtures".into()),
            }
        } else if !could_break && !matches!(accuracy, Accuracy::Exact) {
            let reason = format!("no fixture offered enough requests to break its ceiling ({accuracy})");
            self.ended(Status::Fail, reason)
        } else {
            self
        }
    }

    /// Sums up the operations of the fixtures.
    pub(crate) fn count_operations(&mut self) {
        let (mut sums, mut decisions) = (Operations::new(), 0);
        for one in self.fixtures.iter().filter(|one| one.round_trips.is_some()) {
            decisions += one.decisions;
            for (operation, count) in &one.operations {
                *sums.entry(*operation).or_default() += count;
            }
        }
        self.operations = operation::per_decision(&sums, decisions);
    }

    /// The mean round trips per decision over all fixtures, rounded to three decimal places.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of a run are far below 2^53")]
    pub fn mean_round_trips(&self) -> Option<f64> {
        let measured = || self.fixtures.iter().filter_map(|one| Some((one.round_trips?, one.offered as f64)));
        let offered: f64 = measured().map(|(_, offered)| offered).sum();
        let trips: f64 = measured().map(|(trips, offered)| trips * offered).sum();
        (offered > 0.0).then(|| (trips / offered * 1_000.0).round() / 1_000.0)
    }

    /// The number of fixtures with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.fixtures.iter().filter(|one| one.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Accuracy, Ceiling, Drift};

    use super::{FixtureReport, Status, TargetReport};
    use crate::judge::Verdict;

    const APPROXIMATE: Accuracy = Accuracy::Approximate(Drift {
        ceiling: Ceiling::Other { formula: "2 x limit", of: |load| 2 * load.limit },
        ..Drift::WITHIN_LIMIT
    });

    fn concluded(accuracy: &Accuracy, fixtures: Vec<FixtureReport>) -> TargetReport {
        TargetReport { fixtures, ..TargetReport::new("t", accuracy) }.concluded(accuracy, None)
    }

    #[test]
    fn a_target_without_a_passed_fixture_does_not_pass() {
        assert_eq!(concluded(&Accuracy::Exact, Vec::new()).status, Status::Fail);
        let unsupported = vec![FixtureReport::new("a/b", Verdict::Unsupported)];
        assert_eq!(concluded(&Accuracy::Exact, unsupported.clone()).status, Status::NotApplicable);
        let unverified =
            vec![FixtureReport::new("a/c", Verdict::Unverified).because("own clock"), unsupported[0].clone()];
        let unverified = concluded(&Accuracy::Exact, unverified);
        assert_eq!((unverified.status, unverified.reason.as_deref()), (Status::Unverified, Some("own clock")));
        let passed = vec![FixtureReport::new("a/b", Verdict::Pass)];
        assert_eq!(concluded(&Accuracy::Exact, passed).status, Status::Pass);
    }

    #[test]
    fn a_stub_never_passes() {
        let concluded = |verdicts: &[Verdict]| {
            let fixtures = verdicts.iter().map(|verdict| FixtureReport::new("a/b", *verdict)).collect();
            TargetReport { fixtures, ..TargetReport::new("t", &APPROXIMATE) }
                .concluded(&APPROXIMATE, Some("it counts nothing"))
        };
        let unverified = concluded(&[Verdict::Pass, Verdict::Unverified]);
        assert_eq!((unverified.status, unverified.reason.as_deref()), (Status::Unverified, Some("it counts nothing")));
        assert_eq!(concluded(&[Verdict::Unverified, Verdict::Fail]).status, Status::Fail);
        assert_eq!(concluded(&[Verdict::Pass, Verdict::Unsupported]).status, Status::Unverified);
        assert_eq!(concluded(&[]).status, Status::Fail);
    }

    #[test]
    fn a_target_whose_ceiling_was_never_tested_fails() {
        let mut fixtures = vec![FixtureReport::new("a/b", Verdict::Pass)];
        let untested = concluded(&APPROXIMATE, fixtures.clone());
        assert_eq!(untested.status, Status::Fail);
        assert!(untested.reason.is_some_and(|reason| reason.contains("2 x limit")));
        fixtures[0].ceiling_tested = true;
        assert_eq!(concluded(&APPROXIMATE, fixtures).status, Status::Pass);
    }
}
