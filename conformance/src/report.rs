//! Reports: `report.json` for machines, `report.md` and a table for people, `junit.xml` for CI.

mod junit;
mod markdown;
mod table;

pub use junit::junit;
pub use markdown::markdown;
pub use table::table;

use serde::{Deserialize, Serialize};
use tidegate_core::Accuracy;

use crate::judge::Verdict;
use crate::target::{Emulator, workspace};

/// The schema version of a [`Report`].
pub const SCHEMA: &str = "tidegate/report/v1";

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The build of Tidegate that ran.
    pub tidegate: Tidegate,
    /// The report of each target.
    pub targets: Vec<TargetReport>,
}

/// A build of Tidegate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tidegate {
    /// The version of this package.
    pub version: String,
    /// The commit of the checkout, or `unknown`.
    pub commit: String,
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
    /// The program that emulated the platform.
    pub emulator: Option<Emulator>,
    /// The duration, without building and starting.
    #[serde(default)]
    pub elapsed_ms: u64,
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
    /// The emulator is not installed.
    Unavailable,
    /// Something failed, or nothing ran.
    Fail,
}

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
    /// The most requests that were in flight at the same time.
    #[serde(default)]
    pub in_flight_peak: u64,
    /// The duration of the replay.
    pub elapsed_ms: u64,
}

impl Report {
    /// Creates a report for this build.
    #[must_use]
    pub fn new(targets: Vec<TargetReport>) -> Self {
        let tidegate = Tidegate { version: env!("CARGO_PKG_VERSION").into(), commit: commit() };
        Self { schema: SCHEMA.into(), tidegate, targets }
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
            emulator: None,
            elapsed_ms: 0,
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
        } else if let Some(reason) = stub.filter(|_| count(Verdict::Unverified) > 0) {
            self.ended(Status::Unverified, reason.into())
        } else if passed == 0 || stub.is_some() {
            self.ended(Status::Fail, "no fixture tested the limiter".into())
        } else if !could_break && !matches!(accuracy, Accuracy::Exact) {
            let reason = format!("no fixture offered enough requests to break its ceiling ({accuracy})");
            self.ended(Status::Fail, reason)
        } else {
            self
        }
    }

    /// The number of fixtures with this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.fixtures.iter().filter(|one| one.verdict == verdict).count()
    }
}

impl FixtureReport {
    pub(crate) fn new(id: &str, verdict: Verdict) -> Self {
        Self {
            id: id.into(),
            verdict,
            reason: None,
            reasons: Vec::new(),
            offered: 0,
            admitted: 0,
            errors: 0,
            exact: 0,
            floor: 0,
            ceiling: 0,
            ceiling_tested: false,
            round_trips: None,
            in_flight_peak: 0,
            elapsed_ms: 0,
        }
    }

    pub(crate) fn because(self, reason: &str) -> Self {
        Self { reason: Some(reason.into()), reasons: vec![reason.into()], ..self }
    }

    /// The number of checks admitted beyond what an exact limiter admits.
    #[must_use]
    pub const fn drift(&self) -> u64 {
        self.admitted.saturating_sub(self.exact)
    }
}

fn commit() -> String {
    let git = std::process::Command::new("git").arg("-C").arg(workspace()).args(["rev-parse", "HEAD"]).output();
    let told = git.ok().filter(|told| told.status.success());
    let told = told.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_string());
    told.filter(|commit| !commit.is_empty()).unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Accuracy, Drift};

    use super::{FixtureReport, Status, TargetReport};
    use crate::judge::Verdict;

    const APPROXIMATE: Accuracy =
        Accuracy::Approximate(Drift { formula: "2 x limit", ceiling: |load| 2 * load.limit, ..Drift::WITHIN_LIMIT });

    fn concluded(accuracy: &Accuracy, fixtures: Vec<FixtureReport>) -> TargetReport {
        TargetReport { fixtures, ..TargetReport::new("t", accuracy) }.concluded(accuracy, None)
    }

    #[test]
    fn a_target_without_a_passed_fixture_fails() {
        assert_eq!(concluded(&Accuracy::Exact, Vec::new()).status, Status::Fail);
        let unsupported = vec![FixtureReport::new("a/b", Verdict::Unsupported)];
        assert_eq!(concluded(&Accuracy::Exact, unsupported).status, Status::Fail);
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
        assert_eq!(concluded(&[Verdict::Pass, Verdict::Unsupported]).status, Status::Fail);
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
