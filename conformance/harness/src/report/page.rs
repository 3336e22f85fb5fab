//! `report.html`: one file that needs nothing from the network, and that a phone opens. What the table and the matrix show is one part of its
//! data, and what only an open cell shows is another, which the script unpacks when a reader opens the first one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use tidegate_conformance::json;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::report::TargetReport;
use tidegate_traffic::page::Page;

use super::{Report, escaped_xml};

const PAGE: Page<'_> = Page {
    title: "Tidegate conformance report",
    style: "",
    body: include_str!("page/body.html"),
    script: concat!(include_str!("page/model.js"), include_str!("page/charts.js"), include_str!("page/view.js")),
};

/// What the table and the matrix show of a fixture on a target.
const OVERVIEW: [&str; 9] =
    ["id", "verdict", "offered", "admitted", "exact", "floor", "ceiling", "in_flight_peak", "round_trips"];

/// What only its open cell shows, besides.
const DETAILS: [&str; 8] =
    ["reason", "reasons", "smallest", "cause", "errors", "ceiling_tested", "latency_us", "steps"];

/// Renders the report as a page.
///
/// # Errors
/// Fails if the report cannot be serialized.
pub fn page(report: &Report) -> serde_json::Result<String> {
    let mut overview = serde_json::to_value(report)?;
    let mut details = json!({ "plans": {}, "targets": {} });
    for (id, plan) in overview["fixtures"].as_object_mut().into_iter().flatten() {
        let about = plan["about"].take();
        details["plans"][id] = std::mem::replace(plan, about);
    }
    let all = report.targets.iter().flat_map(|target| &target.fixtures);
    let ids: Vec<&str> = all.map(|fixture| &*fixture.id).collect::<BTreeSet<_>>().into_iter().collect();
    for (target, report) in overview["targets"].as_array_mut().into_iter().flatten().zip(&report.targets) {
        let fixtures = target["fixtures"].as_array_mut().into_iter().flatten();
        let (shown, told): (Vec<_>, Vec<_>) = fixtures.filter_map(|fixture| split(fixture, &ids)).unzip();
        target["fixtures"] = columns(shown);
        details["targets"][&report.name] = columns(told);
    }
    overview["ids"] = json!(ids);
    for mutant in overview["mutants"].as_array_mut().into_iter().flatten() {
        mutant["caught_by"] = mutant["caught_by"].as_array().map_or(0, Vec::len).into();
    }
    PAGE.packed(&still(report), &[("overview", overview), ("details", details)])
}

/// What the table and the matrix show of a fixture, with the place of its id for the id, and its details.
fn split(fixture: &mut Value, ids: &[&str]) -> Option<(Map<String, Value>, Map<String, Value>)> {
    let whole = fixture.as_object_mut()?;
    // The page shows the median and the longest.
    if let Some(latency) = whole.get_mut("latency_us").and_then(Value::as_object_mut) {
        latency.remove("p99");
        latency.values_mut().for_each(|us| *us = us.as_u64().map(two_digits).into());
    }
    if let Some(trips) = whole.get_mut("round_trips") {
        *trips = trips.as_f64().map(|trips| (trips * 100.0).round() / 100.0).into();
    }
    let id = whole.get_mut("id")?;
    *id = ids.binary_search(&id.as_str()?).ok()?.into();
    let mut taken = |names: &[&str]| names.iter().filter_map(|name| whole.remove_entry(*name)).collect();
    Some((taken(&OVERVIEW), taken(&DETAILS)))
}

/// A list of the values of each field, in the order of the rows, with null for one that a row does not have. Side by side, they are more
/// alike than those of a row, so the page takes two thirds of the bytes.
fn columns(rows: Vec<Map<String, Value>>) -> Value {
    let mut columns: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (place, row) in rows.into_iter().enumerate() {
        for (name, value) in row {
            let column = columns.entry(name).or_default();
            column.resize(place, Value::Null);
            column.push(value);
        }
    }
    json!(columns)
}

/// A time on an emulator, as precise as it means something. Each further digit is 20 kB of the page.
fn two_digits(us: u64) -> u64 {
    let unit = 10_u64.pow(us.checked_ilog10().unwrap_or_default().saturating_sub(1));
    us / unit * unit
}

/// The summary, for readers without scripts.
fn still(report: &Report) -> String {
    let columns = ["target", "class", "status", "passed", "failed", "other", "reason"];
    let heads: String = columns.iter().map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
    let mut rows = String::new();
    for target in &report.targets {
        let cells: String = cells(target).iter().map(|cell| format!("<td>{}</td>", escaped_xml(cell))).collect();
        let _ = writeln!(rows, "<tr><th scope=\"row\">{}</th>{cells}</tr>", escaped_xml(&target.name));
    }
    format!("<div class=\"scroll\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>")
}

fn cells(target: &TargetReport) -> [String; 6] {
    let (passed, failed) = (target.count(Verdict::Pass), target.count(Verdict::Fail));
    [
        target.class.replace('_', " "),
        json::name(&target.status).replace('_', " "),
        passed.to_string(),
        failed.to_string(),
        (target.fixtures.len() - passed - failed).to_string(),
        target.reason.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use tidegate_conformance::fixture::{load, shipped};
    use tidegate_conformance::judge::{Tally, Verdict};
    use tidegate_conformance::reference::Prepared;
    use tidegate_conformance::report::{FixtureReport, Latency, TargetReport};
    use tidegate_conformance::run;
    use tidegate_core::Accuracy;

    use super::super::{Plan, Report};
    use super::page;
    use crate::target::{ALL, Target};

    /// The size, in bytes, that a phone opens on the way.
    const SIZE_MAX: usize = 1_000_000;

    /// The report of the fixtures on a target, none of which takes as long as another. If it is not exact, it answers a fourth of the steps
    /// in its own way.
    fn on_target(cases: &[Prepared], accuracy: &Accuracy, mut random: impl Rng) -> TargetReport {
        let fixtures = cases.iter().map(|one| {
            let plan = Plan::of(one);
            let mut steps: Vec<Tally> = plan.steps.iter().map(|step| step.reference).collect();
            let [offered, exact] =
                [plan.steps.iter().map(|step| step.burst).sum(), steps.iter().map(|step| step.admitted).sum()];
            for step in steps.iter_mut().step_by(4) {
                step.admitted += random.random_range(0..9);
                step.ceiling += step.admitted;
            }
            let p50 = random.random_range(20..900);
            let p99 = p50 + random.random_range(1..9_000);
            FixtureReport {
                offered,
                admitted: steps.iter().map(|step| step.admitted).sum(),
                exact,
                ceiling: steps.last().map_or(0, |step| step.ceiling),
                ceiling_tested: offered > exact,
                round_trips: Some(f64::from(random.random_range(1_000..2_000)) / 1_000.0),
                in_flight_peak: random.random_range(1..200),
                latency_us: Some(Latency { p50, p99, max: p99 + random.random_range(1..9_000) }),
                steps: if matches!(accuracy, Accuracy::Exact) { Vec::new() } else { steps },
                ..FixtureReport::new(one.case.id(), Verdict::Pass)
            }
        });
        TargetReport { fixtures: fixtures.collect(), ..TargetReport::new("target", accuracy) }
    }

    #[tokio::test]
    async fn the_page_of_all_fixtures_on_all_targets_is_smaller_than_a_megabyte() -> serde_json::Result<()> {
        let Ok(cases) = load(shipped(), None) else { panic!("the fixtures are wrong") };
        let cases = run::prepare_all(cases).await;
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let size = |targets| Ok(page(&Report::new(targets).with_plans(&cases))?.len());
        let alone = size(Vec::new())?;
        let mut with = |accuracy| size(vec![on_target(&cases, &accuracy, &mut random)]);
        let (exact, other) = (with(Accuracy::Exact)? - alone, with(Accuracy::PerLocation)? - alone);
        // Compression finds what two targets have in common only if it is near, so each takes as much as it does alone.
        let is_exact = |target: &&&dyn Target| matches!(target.declared().capabilities.accuracy, Accuracy::Exact);
        let exacts = ALL.iter().filter(is_exact).count();
        let others = ALL.len() - exacts;
        let whole = alone + exacts * exact + others * other;
        let told = format!(
            "{whole} bytes: {alone}, {exact} for each of {exacts} targets and {other} for each of {others} others"
        );
        assert!(ALL.len() > 20 && cases.len() > 400 && whole < SIZE_MAX, "{told}");
        Ok(())
    }
}
