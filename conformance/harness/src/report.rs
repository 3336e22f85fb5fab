//! Reports of runs: `report.html`, `report.md` and a table for people, `report.json` for machines, `junit.xml` for CI.

mod junit;
mod markdown;
mod mutant;
mod page;
mod plan;
mod table;

pub use junit::escaped as escaped_xml;
pub use junit::junit;
pub use markdown::escaped as escaped_markdown;
pub use markdown::markdown;
pub use mutant::MutantReport;
pub use page::page;
pub use plan::{Plan, PlannedStep};
pub use table::table;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::report::{Status, TargetReport};
use tidegate_traffic::Tidegate;

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
