//! What a comparison needs of a report.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::operation::PerDecision;
use tidegate_conformance::report::{FixtureReport, Status, TargetReport};
use tidegate_harness::report::Report;
use tidegate_traffic::Tidegate;

/// The schema version of a [`Summary`].
pub const SCHEMA: &str = "tidegate/summary/v1";

/// A report without its measurements: small enough to be committed as the baseline of later runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: String,
    /// The build of Tidegate that ran.
    pub tidegate: Tidegate,
    /// The targets by name.
    pub targets: BTreeMap<String, TargetSummary>,
    /// The ids of the fixtures.
    pub fixtures: BTreeSet<String>,
}

/// What a comparison needs of a target's report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSummary {
    /// The class with its formula, as text.
    pub accuracy: String,
    /// The result.
    pub status: Status,
    /// The mean round trips per decision, if they were measured.
    pub round_trips: Option<f64>,
    /// The operations per decision, if they were counted.
    #[serde(default, skip_serializing_if = "PerDecision::is_empty")]
    pub operations: PerDecision,
    /// The requests admitted beyond the reference's, in percent of those offered, in the worst fixture.
    pub worst_drift_percent: u64,
    /// The drift of each fixture that has one. It is empty if the target is not exact: then it depends on races, within
    /// bounds that the suite checks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drift: BTreeMap<String, u64>,
    /// The verdicts other than pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verdicts: BTreeMap<String, Verdict>,
    /// Why the target did not pass.
    #[serde(skip)]
    pub reason: Option<String>,
    /// Why each fixture did not pass.
    #[serde(skip)]
    pub reasons: BTreeMap<String, String>,
}

impl Summary {
    /// Summarizes a report.
    #[must_use]
    pub fn of(report: &Report) -> Self {
        let ids = report.targets.iter().flat_map(|target| &target.fixtures).map(|one| one.id.clone());
        Self {
            schema: SCHEMA.into(),
            tidegate: report.tidegate.clone(),
            fixtures: ids.collect(),
            targets: report.targets.iter().map(|target| (target.name.clone(), TargetSummary::of(target))).collect(),
        }
    }

    /// Keeps only what another run has tested: its targets that could run, and its fixtures.
    #[must_use]
    pub fn restricted_to(mut self, other: &Self) -> Self {
        self.fixtures.retain(|id| other.fixtures.contains(id));
        self.targets.retain(|name, _| other.targets.get(name).is_some_and(|it| it.status != Status::Unavailable));
        for target in self.targets.values_mut() {
            target.verdicts.retain(|id, _| other.fixtures.contains(id));
            target.drift.retain(|id, _| other.fixtures.contains(id));
        }
        self
    }

    /// The summary as JSON with one verdict per line, so that changes of a committed summary are easy to read.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

impl TargetSummary {
    pub(super) fn of(target: &TargetReport) -> Self {
        let ran = || target.fixtures.iter().filter(|one| one.offered > 0);
        let drifts = ran().filter(|one| target.class == "exact" && one.drift() > 0);
        let others = || target.fixtures.iter().filter(|one| one.verdict != Verdict::Pass);
        let reason = |one: &FixtureReport| Some((one.id.clone(), one.reason.clone()?));
        Self {
            accuracy: target.accuracy.clone(),
            status: target.status,
            round_trips: target.mean_round_trips(),
            operations: target.operations.clone(),
            worst_drift_percent: ran().map(|one| one.drift() * 100 / one.offered).max().unwrap_or(0),
            drift: drifts.map(|one| (one.id.clone(), one.drift())).collect(),
            verdicts: others().map(|one| (one.id.clone(), one.verdict)).collect(),
            reason: target.reason.clone(),
            reasons: others().filter_map(reason).collect(),
        }
    }

    /// The verdict of a fixture that ran.
    #[must_use]
    pub fn verdict(&self, id: &str) -> Verdict {
        self.verdicts.get(id).copied().unwrap_or(Verdict::Pass)
    }
}
