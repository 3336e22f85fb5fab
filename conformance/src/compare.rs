//! Compares two reports.

use std::fmt;

use crate::judge::Verdict;
use crate::report::{FixtureReport, Report, TargetReport};

/// One difference between an earlier and a later report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The target, and the fixture if the change concerns one.
    pub place: String,
    /// Describes the change.
    pub what: String,
    /// Whether the later report is worse.
    pub worse: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.worse { "worse " } else { "      " };
        write!(f, "{mark}{}: {}", self.place, self.what)
    }
}

/// Returns all changes, in the order of the earlier report.
///
/// These changes are worse: a worse verdict or status, more drift, more round trips, and a target, fixture or
/// measurement that is missing from the later report.
#[must_use]
pub fn changes(before: &Report, after: &Report) -> Vec<Change> {
    let mut found = Vec::new();
    for old in &before.targets {
        match after.targets.iter().find(|new| new.name == old.name) {
            Some(new) => target(old, new, &mut found),
            None => found.push(Change { place: old.name.clone(), what: "is missing".into(), worse: true }),
        }
    }
    let known = |name: &str| before.targets.iter().any(|old| old.name == name);
    for new in after.targets.iter().filter(|new| !known(&new.name)) {
        found.push(Change { place: new.name.clone(), what: format!("is new: {:?}", new.status), worse: false });
    }
    found
}

fn target(old: &TargetReport, new: &TargetReport, found: &mut Vec<Change>) {
    let mut tell = |what: String, worse| found.push(Change { place: old.name.clone(), what, worse });
    if old.status != new.status {
        tell(format!("{:?} became {:?}", old.status, new.status), new.status > old.status);
    }
    if old.accuracy != new.accuracy {
        tell(format!("declares {:?} instead of {:?}", new.accuracy, old.accuracy), false);
    }
    let known = |fixtures: &[FixtureReport], id: &str| fixtures.iter().any(|one| one.id == id);
    for one in new.fixtures.iter().filter(|one| !known(&old.fixtures, &one.id)) {
        let what = format!("is new: {:?}", one.verdict);
        found.push(Change { place: format!("{} {}", old.name, one.id), what, worse: one.verdict == Verdict::Fail });
    }
    for one in &old.fixtures {
        let place = format!("{} {}", old.name, one.id);
        match new.fixtures.iter().find(|new| new.id == one.id) {
            Some(new) => fixture(&place, one, new, found),
            None => found.push(Change { place, what: "is missing".into(), worse: true }),
        }
    }
}

fn fixture(place: &str, old: &FixtureReport, new: &FixtureReport, found: &mut Vec<Change>) {
    let mut tell = |what: String, worse| found.push(Change { place: place.into(), what, worse });
    if old.verdict != new.verdict {
        let why = new.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        tell(format!("{:?} became {:?}{why}", old.verdict, new.verdict), new.verdict > old.verdict);
    }
    if old.drift() != new.drift() {
        tell(format!("drift {} became {}", old.drift(), new.drift()), new.drift() > old.drift());
    }
    if old.ceiling_tested && !new.ceiling_tested {
        tell("the ceiling is no longer tested".into(), true);
    }
    match (old.round_trips, new.round_trips) {
        // Races between the first calls of a script change the count slightly from run to run.
        (Some(old), Some(new)) if (old - new).abs() > 0.05 => {
            tell(format!("{old} round trips per decision became {new}"), new > old);
        }
        (Some(old), None) => tell(format!("{old} round trips per decision are no longer measured"), true),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::Accuracy;

    use super::changes;
    use crate::judge::Verdict;
    use crate::report::{FixtureReport, Report, TargetReport};

    fn report(change: impl FnOnce(&mut Report)) -> Report {
        let mut target = TargetReport::new("redis", &Accuracy::Exact);
        let mut one = FixtureReport::new("a/b", Verdict::Pass);
        one.round_trips = Some(1.0);
        target.fixtures = vec![one, FixtureReport::new("a/c", Verdict::Pass)];
        let mut report = Report::new(vec![target, TargetReport::new("memory", &Accuracy::Exact)]);
        change(&mut report);
        report
    }

    fn worse(change: impl FnOnce(&mut Report)) -> Vec<String> {
        let changes = changes(&report(|_| ()), &report(change));
        changes.iter().filter(|change| change.worse).map(ToString::to_string).collect()
    }

    #[test]
    fn only_changes_are_reported() {
        assert!(changes(&report(|_| ()), &report(|_| ())).is_empty());
        assert!(worse(|report| report.targets[0].fixtures[0].elapsed_ms = 9).is_empty());
    }

    #[test]
    fn changes_for_the_worse_are_marked() {
        assert_eq!(worse(|report| report.targets[0].fixtures[0].verdict = Verdict::Fail).len(), 1);
        assert_eq!(worse(|report| report.targets[0].fixtures[0].admitted = 1).len(), 1);
        assert_eq!(worse(|report| report.targets[0].fixtures[0].round_trips = Some(2.0)).len(), 1);
        assert_eq!(worse(|report| report.targets[0].fixtures.truncate(1)), ["worse redis a/c: is missing"]);
        assert_eq!(worse(|report| report.targets.truncate(1)), ["worse memory: is missing"]);
    }

    #[test]
    fn changes_for_the_better_are_reported_too() {
        let (worse, better) = (report(|report| report.targets[0].fixtures[0].admitted = 1), report(|_| ()));
        let told = changes(&worse, &better);
        assert_eq!(told.len(), 1);
        assert!(!told[0].worse);
    }
}
