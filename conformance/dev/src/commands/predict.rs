use std::path::PathBuf;

use comfy_table::Table;
use tidegate::program::{Failure, Selection, block_on, report, tell};
use tidegate_conformance::report::TargetReport;
use tidegate_harness::output::outln;
use tidegate_harness::target::ALL;

use crate::predict::{self, Compared};

const EXAMPLES: &str = "\
Examples:
  tidegate-dev predict                     compares with target/conformance/report.json, which `tidegate run` writes
  tidegate-dev predict report.json --filter 'race/*' --json

A target and its prediction agree on a fixture if both give the same verdict with as many admissions. If the target is
approximate, it is enough that both are within its bounds.
Exit codes: 0 they agree, 1 a fixture differs, 2 the command line or an input is wrong.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The report.json of a run.
    #[arg(value_name = "REPORT", default_value = "target/conformance/report.json")]
    report: PathBuf,
    #[command(flatten)]
    selection: Selection,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let real = report(&args.report)?;
    let prepared = args.selection.prepared()?;
    let mut all = Vec::new();
    for target in ALL {
        let ran = |found: &&TargetReport| found.name == target.name() && !found.fixtures.is_empty();
        let Some(found) = real.targets.iter().find(ran) else { continue };
        tell(&format!("predicting {}", target.name()));
        if let Some(predicted) = block_on(predict::predict(*target, &prepared))?.map_err(Failure::Usage)? {
            all.push(predict::compare(&predicted, found, &target.declared().capabilities.accuracy));
        }
    }
    if all.is_empty() {
        let why = "it has no target that the simulator models; `tidegate run --target redis` writes one that has";
        return Err(Failure::Usage(format!("{}: {why}", args.report.display())));
    }
    if all.iter().all(|one| one.same + one.within_bounds + one.different.len() == 0) {
        return Err(Failure::Usage(format!(
            "{}: has no result of these fixtures to compare with",
            args.report.display()
        )));
    }
    if args.json {
        outln!("{}", serde_json::json!({ "targets": all }));
    } else {
        outln!("{}", table(&all));
        for one in &all {
            for difference in &one.different {
                outln!("{} {difference}", one.target);
            }
        }
        let sum = |of: fn(&Compared) -> usize| all.iter().map(of).sum::<usize>();
        let (same, within) = (sum(|one| one.same), sum(|one| one.within_bounds));
        let different = sum(|one| one.different.len());
        let predicted = same + within + different;
        outln!("{predicted} predictions: {same} the same, {within} within bounds, {different} different");
    }
    if all.iter().any(|one| !one.different.is_empty()) { Err(Failure::Failed) } else { Ok(()) }
}

fn table(all: &[Compared]) -> Table {
    let columns = ["target", "same", "within bounds", "different", "round trips predicted", "counted"];
    let mut table = tidegate_traffic::table(columns, 1..columns.len());
    for one in all {
        let trips = |of: fn((f64, f64)) -> f64| {
            one.round_trips.map_or_else(|| "not counted".into(), |trips| format!("{:.3}", of(trips)))
        };
        table.add_row([
            one.target.clone(),
            one.same.to_string(),
            one.within_bounds.to_string(),
            one.different.len().to_string(),
            trips(|(predicted, _)| predicted),
            trips(|(_, counted)| counted),
        ]);
    }
    table
}
