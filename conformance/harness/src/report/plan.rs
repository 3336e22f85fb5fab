//! What the fixtures of a run do, for reports that show it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_conformance::fixture::{Case, Disturb, Fixture, GateFixture, Op};
use tidegate_conformance::judge::Tally;
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::replay::Replay;

/// What a fixture does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// One sentence that describes the fixture.
    pub about: String,
    /// The specification or the bug that the fixture is based on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The policy or the rules file, as in the fixture.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub policy: Value,
    /// The number of locations.
    #[serde(default = "one")]
    pub locations: u64,
    /// The steps. A request with an expected key has none.
    #[serde(default)]
    pub steps: Vec<PlannedStep>,
}

/// A burst of identical requests at one instant, and what the reference answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// The time from the fixture's start.
    pub at_ms: i64,
    /// The operation.
    pub op: Op,
    /// The number of concurrent requests.
    pub burst: u64,
    /// The cost of each request.
    pub cost: u64,
    /// The location at which the requests arrive.
    pub location: u64,
    /// The keys, or the request.
    pub of: String,
    /// How the store is disturbed during the burst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturb: Option<Disturb>,
    /// The reference's answers.
    pub reference: Tally,
}

impl Plan {
    pub(super) fn of(prepared: &Prepared) -> Self {
        match &prepared.case {
            Case::Decision(fixture) => Self {
                steps: if prepared.unmet.is_empty() { steps(fixture, &prepared.reference) } else { Vec::new() },
                ..decision(fixture)
            },
            Case::Gate(fixture) => gate(fixture),
            Case::Request(fixture) => Self {
                about: fixture.about.clone(),
                source: fixture.source.clone(),
                policy: Value::Null,
                locations: one(),
                steps: Vec::new(),
            },
        }
    }
}

fn steps(fixture: &Fixture, reference: &Replay) -> Vec<PlannedStep> {
    let steps = fixture.steps.iter().zip(tidegate_conformance::judge::of_reference(fixture, reference));
    let steps = steps.map(|(step, reference)| PlannedStep {
        at_ms: step.at_ms,
        op: step.op,
        burst: step.burst,
        cost: step.cost,
        location: step.location,
        of: step.keys_in_words(),
        disturb: step.disturb,
        reference,
    });
    steps.collect()
}

fn decision(fixture: &Fixture) -> Plan {
    Plan {
        about: fixture.about.clone(),
        source: fixture.source.clone(),
        policy: serde_json::to_value(&fixture.policy).unwrap_or_default(),
        locations: fixture.locations,
        steps: Vec::new(),
    }
}

fn gate(fixture: &GateFixture) -> Plan {
    let mut passed = 0;
    let steps = fixture.steps.iter().map(|step| {
        passed += step.expect.passed;
        let denied = step.burst.saturating_sub(step.expect.passed);
        PlannedStep {
            at_ms: i64::try_from(step.at_ms).unwrap_or(i64::MAX),
            op: Op::Check,
            burst: step.burst,
            cost: step.cost.unwrap_or(1),
            location: 0,
            of: format!("{} {}", step.method, step.path),
            disturb: None,
            reference: Tally { admitted: step.expect.passed, denied, errors: 0, floor: passed, ceiling: passed },
        }
    });
    Plan {
        about: fixture.about.clone(),
        source: fixture.source.clone(),
        policy: fixture.rules.clone(),
        locations: one(),
        steps: steps.collect(),
    }
}

const fn one() -> u64 {
    1
}
