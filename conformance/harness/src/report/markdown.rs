use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_conformance::json;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::{FixtureReport, Status, TargetReport};

use super::Report;
use super::table::{seconds, status};

/// The most failures of a target that are listed. `report.html` has all of them.
const FAILURES_MAX: usize = 20;

/// The most reasons that are listed of a failure.
const REASONS_MAX: usize = 3;

/// Renders a summary for a pull request: a row per target, then the failures, then what was left out and why.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let failed = report.targets.iter().filter(|target| target.status == Status::Fail).count();
    let total = match report.targets.len() {
        1 => "1 target".to_string(),
        many => format!("{many} targets"),
    };
    let title = if failed == 0 { format!("{total}, none failed") } else { format!("{failed} of {total} failed") };
    let mut out = format!("# Conformance: {title}\n\n");
    let _ = writeln!(out, "Tidegate {} at `{}`.\n", report.tidegate.version, report.tidegate.commit);
    let columns = [
        "target",
        "class",
        "status",
        "pass",
        "fail",
        "unsupported",
        "unverified",
        "worst drift",
        "trips",
        "$/million",
        "time",
    ];
    line(&mut out, &columns.map(str::to_string));
    line(&mut out, &columns.map(|_| "-".to_string()));
    for target in &report.targets {
        line(&mut out, &row(target));
    }
    for target in report.targets.iter().filter(|target| target.status == Status::Fail) {
        failures(&mut out, target);
    }
    left_out(&mut out, &report.targets);
    let _ = writeln!(out, "\n`report.html` shows every fixture on every target, with its timeline.");
    out
}

fn row(target: &TargetReport) -> [String; 11] {
    let count = |verdict| target.count(verdict).to_string();
    let symbol = match target.status {
        Status::Pass => "✅",
        Status::Fail => "❌",
        Status::Unverified => "❔",
        Status::NotApplicable | Status::Unavailable => "⚪",
    };
    let ran = target.fixtures.iter().filter(|one| one.offered > 0);
    [
        format!("`{}`", target.name),
        target.class.replace('_', " "),
        format!("{symbol} {}", status(target.status)),
        count(Verdict::Pass),
        count(Verdict::Fail),
        count(Verdict::Unsupported),
        count(Verdict::Unverified),
        ran.map(FixtureReport::drift).max().map_or_else(|| "-".into(), |drift| drift.to_string()),
        target.mean_round_trips().map_or_else(|| "-".into(), |trips| trips.to_string()),
        target.cost.as_ref().map_or_else(|| "-".into(), |cost| format!("{:.2}", cost.usd_per_million)),
        seconds(target.elapsed_ms),
    ]
}

fn failures(out: &mut String, target: &TargetReport) {
    let _ = writeln!(out, "\n## {} failed\n", target.name);
    if let Some(reason) = &target.reason {
        let _ = writeln!(out, "{}.", escaped(reason));
    }
    let failed: Vec<_> = target.fixtures.iter().filter(|one| one.verdict == Verdict::Fail).collect();
    for one in failed.iter().take(FAILURES_MAX) {
        let _ = writeln!(out, "\n- `{}`: admitted {} of {}", one.id, one.admitted, one.offered);
        for reason in one.reasons.iter().take(REASONS_MAX) {
            let _ = writeln!(out, "  - {}", escaped(reason));
        }
        if let Some(smallest) = &one.smallest {
            let _ = writeln!(out, "  - in its smallest form: {}", escaped(&smallest.reason));
        }
        if one.reasons.len() > REASONS_MAX {
            let _ = writeln!(out, "  - and {} more", one.reasons.len() - REASONS_MAX);
        }
    }
    if failed.len() > FAILURES_MAX {
        let _ = writeln!(out, "\nAnd {} more fixtures, in `report.html`.", failed.len() - FAILURES_MAX);
    }
}

/// Lists, folded, how many fixtures each target does not support or cannot show, by reason.
fn left_out(out: &mut String, targets: &[TargetReport]) {
    let mut reasons: BTreeMap<(&str, Verdict, &str), usize> = BTreeMap::new();
    for target in targets {
        for one in target.fixtures.iter().filter(|one| !matches!(one.verdict, Verdict::Pass | Verdict::Fail)) {
            let reason = one.reason.as_deref().unwrap_or("declared, and answered so");
            *reasons.entry((&target.name, one.verdict, reason)).or_default() += 1;
        }
    }
    let absent = targets.iter().filter(|target| matches!(target.status, Status::Unavailable | Status::NotApplicable));
    let absent: Vec<_> = absent.collect();
    if reasons.is_empty() && absent.is_empty() {
        return;
    }
    let count: usize = reasons.values().sum();
    let _ = writeln!(out, "\n<details><summary>Not supported, or not shown here: {count} fixtures</summary>\n");
    for ((target, verdict, reason), count) in reasons {
        let _ = writeln!(out, "- `{target}`: {count} {}: {}", json::name(&verdict), escaped(reason));
    }
    for target in absent {
        let reason = target.reason.as_deref().unwrap_or_default();
        let _ = writeln!(out, "- `{}`: {}: {}", target.name, status(target.status), escaped(reason));
    }
    let _ = writeln!(out, "\n</details>");
}

fn line(out: &mut String, cells: &[String]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// Escapes text for a cell of a table.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}
