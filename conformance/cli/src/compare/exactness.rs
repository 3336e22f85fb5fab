//! How exact the targets are, by runtime, for other pages to embed.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_conformance::report::{Emulator, Status};
use tidegate_harness::report::Report;
use tidegate_traffic::Tidegate;

use super::TargetSummary;

/// The schema version of an [`Exactness`].
const SCHEMA: &str = "tidegate/exactness/v1";

/// How exact the targets of a report are. Runtimes have the names of WinterTC's runtime keys. Targets on other runtimes are
/// left out.
#[derive(Debug, Serialize)]
pub struct Exactness<'a> {
    schema: &'static str,
    tidegate: &'a Tidegate,
    runtimes: BTreeMap<&'a str, BTreeMap<&'a str, Target<'a>>>,
}

#[derive(Debug, Serialize)]
struct Target<'a> {
    class: &'a str,
    bound: &'a str,
    status: Status,
    passed: usize,
    failed: usize,
    worst_drift_percent: u64,
    emulator: Option<&'a Emulator>,
}

impl<'a> Exactness<'a> {
    /// Extracts it from a report.
    #[must_use]
    pub fn of(report: &'a Report) -> Self {
        let mut runtimes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for target in &report.targets {
            let Some(runtime) = &target.runtime else { continue };
            let shown = Target {
                class: &target.class,
                bound: target.accuracy.split_once(": ").map_or(&*target.accuracy, |(_, bound)| bound),
                status: target.status,
                passed: target.count(tidegate_conformance::judge::Verdict::Pass),
                failed: target.count(tidegate_conformance::judge::Verdict::Fail),
                worst_drift_percent: TargetSummary::of(target).worst_drift_percent,
                emulator: target.emulator.as_ref(),
            };
            runtimes.entry(&**runtime).or_default().insert(&*target.name, shown);
        }
        Self { schema: SCHEMA, tidegate: &report.tidegate, runtimes }
    }
}
