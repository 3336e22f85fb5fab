use std::collections::BTreeMap;
use std::fmt::Write as _;

use tidegate_conformance::json;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::{FixtureReport, Status, TargetReport};

use super::Report;

/// The columns of a target's row. The first three are text.
const COLUMNS: [&str; 14] = [
    "target",
    "class",
    "status",
    "pass",
    "fail",
    "other",
    "offered",
    "admitted",
    "worst drift",
    "trips",
    "$/million",
    "in flight",
    "requests/s",
    "time",
];

/// Renders the report as a table, followed by the fixtures that did not pass.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut table = tidegate_traffic::table(COLUMNS, 3..COLUMNS.len());
    table.add_rows(report.targets.iter().map(row));
    let mut out = format!("{table}\n");
    for target in &report.targets {
        tell(&mut out, target);
    }
    out
}

fn row(target: &TargetReport) -> [String; 14] {
    let ran = || target.fixtures.iter();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let count = |verdict| target.count(verdict);
    let other = target.fixtures.len() - count(Verdict::Pass) - count(Verdict::Fail);
    let offered: u64 = ran().map(|one| one.offered).sum();
    let busy_ms: u64 = ran().map(|one| one.elapsed_ms).sum();
    let trips = target.mean_round_trips();
    [
        target.name.clone(),
        target.class.clone(),
        status(target.status).to_string(),
        count(Verdict::Pass).to_string(),
        count(Verdict::Fail).to_string(),
        other.to_string(),
        offered.to_string(),
        ran().map(|one| one.admitted).sum::<u64>().to_string(),
        or_dash(ran().map(FixtureReport::drift).max().map(|drift| drift.to_string())),
        or_dash(trips.map(|trips| trips.to_string())),
        or_dash(target.cost.as_ref().map(|cost| format!("{:.2}", cost.usd_per_million))),
        or_dash(ran().map(|one| one.in_flight_peak).max().map(|peak| peak.to_string())),
        or_dash((offered * 1_000).checked_div(busy_ms).map(|rate| rate.to_string())),
        seconds(target.elapsed_ms),
    ]
}

pub(super) const fn status(status: Status) -> &'static str {
    match status {
        Status::Pass => "pass",
        Status::Fail => "FAIL",
        Status::Unverified => "unverified",
        Status::NotApplicable => "not applicable",
        Status::Unavailable => "unavailable",
    }
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1_000, ms % 1_000 / 100)
}

fn tell(out: &mut String, target: &TargetReport) {
    if let Some(reason) = &target.reason {
        let _ = writeln!(out, "\n{} {}: {reason}", target.name, status(target.status));
    }
    for one in target.fixtures.iter().filter(|one| one.verdict == Verdict::Fail) {
        let _ = writeln!(out, "  {}", one.id);
        // The other reasons usually follow from the first one.
        if let Some(reason) = &one.reason {
            let _ = writeln!(out, "    {reason}");
        }
        if let Some(smallest) = &one.smallest {
            let _ = writeln!(out, "    in its smallest form: {}", smallest.reason);
        }
        match one.reasons.len() {
            0 | 1 => {}
            count => {
                let _ = writeln!(out, "    and {} more, in report.html", count - 1);
            }
        }
    }
    let left_out = target.fixtures.iter().filter(|one| !matches!(one.verdict, Verdict::Pass | Verdict::Fail));
    let mut reasons: BTreeMap<(Verdict, &str), Vec<&str>> = BTreeMap::new();
    for one in left_out {
        let reason = one
            .reason
            .as_deref()
            .unwrap_or("the target declares that it does not support this, and answers `unsupported`");
        reasons.entry((one.verdict, reason)).or_default().push(&one.id);
    }
    for ((verdict, reason), ids) in reasons {
        let _ = writeln!(out, "\n{} {}: {reason}", target.name, json::name(&verdict));
        for id in ids {
            let _ = writeln!(out, "  {id}");
        }
    }
}
