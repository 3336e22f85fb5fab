//! Compares runs: on different commits, days or platforms.

mod badge;
mod exactness;
mod render;
mod summary;

pub use badge::badge;
pub use exactness::Exactness;
pub use render::{html, markdown, text};
pub use summary::{SCHEMA, Summary, TargetSummary};

use std::fmt;

use serde::Serialize;
use tidegate_conformance::json;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::Status;

/// By how much the round trips and other operations per decision may differ between equal runs: calls race to be the first
/// of a script.
const TRIPS_TOLERANCE: f64 = 0.05;

/// By how many percentage points the worst drift of a target that is not exact may differ between equal runs.
const DRIFT_TOLERANCE: u64 = 10;

/// One difference between an earlier and a later run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The target, if the change concerns one.
    pub target: Option<String>,
    /// The fixture, if the change concerns one.
    pub fixture: Option<String>,
    /// Describes the change.
    pub what: String,
    /// Whether the later run is worse.
    pub worse: bool,
    /// Whether the change is worse, and the user allows it.
    pub allowed: bool,
}

impl Change {
    /// The target and the fixture, separated by a space. `--allow` selects changes by it.
    #[must_use]
    pub fn place(&self) -> String {
        [&self.target, &self.fixture].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Whether the change is worse and not allowed.
    #[must_use]
    pub const fn is_regression(&self) -> bool {
        self.worse && !self.allowed
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = match self {
            Self { allowed: true, .. } => "allowed ",
            Self { worse: true, .. } => "worse   ",
            _ => "        ",
        };
        write!(f, "{mark}{}: {}", self.place(), self.what)
    }
}

/// The changes from one run to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transition {
    /// The name of the earlier run.
    pub before: String,
    /// The name of the later run.
    pub after: String,
    /// The changes, by target and fixture.
    pub changes: Vec<Change>,
}

/// Returns all changes.
///
/// These are worse: a worse verdict or status, a fixture that is new and fails, a target or fixture that is missing, and
/// more round trips or drift than equal runs may differ by.
#[must_use]
pub fn changes(before: &Summary, after: &Summary) -> Vec<Change> {
    let mut found = Changes::default();
    for id in before.fixtures.difference(&after.fixtures) {
        found.tell(None, Some(id), "is missing".into(), true);
    }
    for id in after.fixtures.difference(&before.fixtures) {
        found.tell(None, Some(id), "is new".into(), false);
    }
    for (name, old) in &before.targets {
        match after.targets.get(name) {
            Some(new) => target(name, (before, old), (after, new), &mut found),
            None => found.tell(Some(name), None, "is missing".into(), true),
        }
    }
    for (name, new) in after.targets.iter().filter(|(name, _)| !before.targets.contains_key(*name)) {
        found.tell(Some(name), None, format!("is new: {}", in_words(&new.status)), new.status == Status::Fail);
    }
    found.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn tell(&mut self, target: Option<&str>, fixture: Option<&str>, what: String, worse: bool) {
        let (target, fixture) = (target.map(str::to_string), fixture.map(str::to_string));
        self.0.push(Change { target, fixture, what, worse, allowed: false });
    }
}

fn target(
    name: &str,
    (before, old): (&Summary, &TargetSummary),
    (after, new): (&Summary, &TargetSummary),
    found: &mut Changes,
) {
    if old.status != new.status {
        let what =
            format!("{} became {}{}", in_words(&old.status), in_words(&new.status), because(new.reason.as_deref()));
        found.tell(Some(name), None, what, new.status > old.status);
    }
    if old.accuracy != new.accuracy {
        found.tell(Some(name), None, format!("declares {:?} instead of {:?}", new.accuracy, old.accuracy), false);
    }
    if old.status == Status::Unavailable || new.status == Status::Unavailable {
        return;
    }
    for id in after.fixtures.iter() {
        let (is, was) = (new.verdict(id), before.fixtures.contains(id).then(|| old.verdict(id)));
        let why = || because(new.reasons.get(id).map(String::as_str));
        match was {
            Some(was) if was != is => {
                found.tell(
                    Some(name),
                    Some(id),
                    format!("{} became {}{}", in_words(&was), in_words(&is), why()),
                    is > was,
                );
            }
            None if is == Verdict::Fail => {
                found.tell(Some(name), Some(id), format!("is new, and fails{}", why()), true)
            }
            _ => {}
        }
        let (was, is) = (old.drift.get(id).unwrap_or(&0), new.drift.get(id).unwrap_or(&0));
        if was != is {
            found.tell(Some(name), Some(id), format!("drift {was} became {is}"), is > was);
        }
    }
    let (was, is) = (old.worst_drift_percent, new.worst_drift_percent);
    if was.abs_diff(is) > DRIFT_TOLERANCE {
        found.tell(Some(name), None, format!("the worst drift of {was} % became {is} %"), is > was);
    }
    match (old.round_trips, new.round_trips) {
        (Some(was), Some(is)) if (was - is).abs() > TRIPS_TOLERANCE => {
            found.tell(Some(name), None, format!("{was} round trips per decision became {is}"), is > was);
        }
        (Some(was), None) => {
            found.tell(Some(name), None, format!("{was} round trips per decision are no longer measured"), true);
        }
        _ => {}
    }
    // A report that counts no operations says nothing about their cost.
    for (operation, is) in new.operations.iter().filter(|_| !old.operations.is_empty()) {
        let was = old.operations.get(operation).unwrap_or(&0.0);
        if (was - is).abs() > TRIPS_TOLERANCE && !operation.is_awaited() {
            found.tell(Some(name), None, format!("{was} {} per decision became {is}", in_words(operation)), is > was);
        }
    }
}

fn because(reason: Option<&str>) -> String {
    reason.map(|reason| format!(" ({reason})")).unwrap_or_default()
}

/// A verdict or status as in the reports.
fn in_words(value: &impl Serialize) -> String {
    json::name(value).replace('_', " ")
}

#[cfg(test)]
mod tests {
    use tidegate_core::Accuracy;

    use super::{Summary, changes};
    use tidegate_conformance::judge::Verdict;
    use tidegate_conformance::report::{FixtureReport, Status, TargetReport};
    use tidegate_harness::report::Report;

    fn report(change: impl FnOnce(&mut Report)) -> Summary {
        let mut target = TargetReport::new("redis", &Accuracy::Exact);
        let mut one = FixtureReport::new("a/b", Verdict::Pass);
        (one.offered, one.round_trips) = (10, Some(1.0));
        target.fixtures = vec![one, FixtureReport::new("a/c", Verdict::Pass)];
        let other =
            TargetReport { fixtures: target.fixtures.clone(), ..TargetReport::new("soft", &Accuracy::PerLocation) };
        let mut report = Report::new(vec![target, other]);
        change(&mut report);
        Summary::of(&report)
    }

    fn worse(change: impl FnOnce(&mut Report)) -> Vec<String> {
        let changes = changes(&report(|_| ()), &report(change));
        changes
            .iter()
            .filter(|change| change.worse)
            .map(|change| format!("{}: {}", change.place(), change.what))
            .collect()
    }

    #[test]
    fn only_changes_are_reported() {
        assert!(changes(&report(|_| ()), &report(|_| ())).is_empty());
        assert!(worse(|report| report.targets[0].fixtures[0].elapsed_ms = 9).is_empty());
    }

    #[test]
    fn changes_for_the_worse_are_marked() {
        let failed = |report: &mut Report| {
            let reason = Some("1 more".into());
            report.targets[0].fixtures[0] = FixtureReport { reason, ..FixtureReport::new("a/b", Verdict::Fail) };
        };
        assert_eq!(worse(failed)[0], "redis a/b: pass became fail (1 more)");
        assert_eq!(worse(|report| report.targets[0].fixtures[0].admitted = 1), ["redis a/b: drift 0 became 1"]);
        let trips = worse(|report| report.targets[0].fixtures[0].round_trips = Some(2.0));
        assert_eq!(trips, ["redis: 1 round trips per decision became 2"]);
        let fewer = worse(|report| report.targets.iter_mut().for_each(|target| target.fixtures.truncate(1)));
        assert_eq!(fewer, ["a/c: is missing"]);
        assert_eq!(worse(|report| report.targets.truncate(1)), ["soft: is missing"]);
        let gone = worse(|report| {
            let (status, reason) = (Status::Unavailable, Some("no".into()));
            report.targets[1] = TargetReport { status, reason, ..TargetReport::new("soft", &Accuracy::PerLocation) };
        });
        assert_eq!(gone, ["soft: pass became unavailable (no)"]);
    }

    #[test]
    fn races_of_an_approximate_target_are_no_regression() {
        assert_eq!(worse(|report| report.targets[1].fixtures[0].admitted = 1), [""; 0]);
        let more = worse(|report| report.targets[1].fixtures[0].admitted = 2);
        assert_eq!(more, ["soft: the worst drift of 0 % became 20 %"]);
    }

    #[test]
    fn changes_for_the_better_are_reported_too() {
        let (worse, better) = (report(|report| report.targets[0].fixtures[0].admitted = 1), report(|_| ()));
        let told = changes(&worse, &better);
        assert_eq!(told.len(), 1);
        assert!(!told[0].worse);
    }

    #[test]
    fn a_summary_is_all_that_a_comparison_needs() {
        let whole = report(|report| report.targets[1].fixtures[1].verdict = Verdict::Unsupported);
        let stored: Summary = serde_json::from_str(&whole.to_json()).expect("a summary");
        assert!(changes(&stored, &whole).is_empty());
        assert_eq!(changes(&stored, &report(|_| ())).len(), 1);
    }
}
