//! Reports: `report.html`, `report.md` and a table for people, `report.json` for machines, `junit.xml` for CI.

mod fixture;
mod junit;
mod latency;
mod markdown;
mod mutant;
mod page;
mod plan;
mod table;

pub use fixture::{Counterexample, FixtureReport, Latency};
pub use junit::escaped as escaped_xml;
pub use junit::junit;
pub use latency::Bucket;
pub use markdown::escaped as escaped_markdown;
pub use markdown::markdown;
pub use mutant::MutantReport;
pub use page::page;
pub use plan::{Plan, PlannedStep};
pub use table::table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::Accuracy;
pub use tidegate_traffic::Tidegate;
use tidegate_traffic::operation::{self, Cost, Operations, PerDecision};

use crate::judge::Verdict;
use crate::reference::Prepared;
pub use crate::target::{Cause, Emulator};

/// The schema version of a [`Report`].
pub const SCHEMA: &str = "tidegate/report/v1";

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The build of Tidegate that ran.
    pub tidegate: Tidegate,
    /// The command that runs one fixture on one target. `{target}` and `{fixture}` stand for their names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// What each fixture does.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fixtures: BTreeMap<String, Plan>,
    /// The broken limiters, and how many fixtures caught each, if that was tested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mutants: Vec<MutantReport>,
    /// The report of each target.
    pub targets: Vec<TargetReport>,
}

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

impl Report {
    /// Creates a report for this build.
    #[must_use]
    pub fn new(targets: Vec<TargetReport>) -> Self {
        Self {
            schema: SCHEMA.into(),
            tidegate: Tidegate::this(),
            command: String::new(),
            fixtures: BTreeMap::new(),
            mutants: Vec::new(),
            targets,
        }
    }

    /// Adds what the fixtures do.
    #[must_use]
    pub fn with_plans(self, cases: &[Prepared]) -> Self {
        let plans = cases.iter().map(|prepared| (prepared.case.id().to_string(), Plan::of(prepared)));
        Self { fixtures: plans.collect(), ..self }
    }

    /// Whether a target failed.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.targets.iter().any(|target| target.status == Status::Fail)
    }
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

    pub(crate) fn ended(self, status: Status, reason: String) -> Self {
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

    /// Sums up the operations of the fixtures, and prices them by a platform's list.
    pub(crate) fn count_operations(&mut self, provider: Option<&str>) {
        let (mut sums, mut decisions) = (Operations::new(), 0);
        for one in self.fixtures.iter().filter(|one| one.round_trips.is_some()) {
            decisions += one.decisions;
            for (operation, count) in &one.operations {
                *sums.entry(*operation).or_default() += count;
            }
        }
        self.operations = operation::per_decision(&sums, decisions);
        self.cost = provider.filter(|_| decisions > 0).and_then(|provider| operation::cost(provider, &self.operations));
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
