use std::path::PathBuf;

use comfy_table::ContentArrangement;
use tidegate::program::{Failure, Selection, block_on, counted, default_out};
use tidegate_harness::output::outln;
use tidegate_harness::report::MutantReport;

use crate::mutants;

const EXAMPLES: &str = "\
Examples:
  tidegate-dev mutants                             which fixtures catch which broken limiter
  tidegate-dev mutants --filter 'race/*' --all     what one group catches";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    selection: Selection,
    /// List all fixtures that catch a mutant, not only the first few.
    #[arg(long)]
    all: bool,
    /// The folder for mutants.json, which the reports of later runs show. The default is target/conformance in the
    /// workspace. Nothing is written if --fixtures or --filter selects other fixtures.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// The most fixtures that a row lists without `--all`.
const NAMED: usize = 3;

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let cases = args.selection.prepared()?;
    block_on(async {
        let false_alarms = mutants::false_alarms(&cases).await;
        let mut table = tidegate_traffic::table(["mutant", "what is broken", "caught by", "fixtures"], 0..0);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        let all = mutants::all();
        let (mut survivors, mut sharp) = (Vec::new(), vec![false; cases.len()]);
        let mut reports = Vec::with_capacity(all.len());
        for mutant in &all {
            let caught_by = mutants::caught_by(mutant, &cases).await;
            if caught_by.is_empty() {
                survivors.push(mutant.name);
            }
            for (sharp, case) in sharp.iter_mut().zip(&cases) {
                *sharp |= caught_by.iter().any(|id| id == case.case.id());
            }
            let count = if caught_by.is_empty() { "NONE".to_string() } else { caught_by.len().to_string() };
            table.add_row([mutant.name, mutant.about, &count, &named(&caught_by, args.all)]);
            reports.push(MutantReport { name: mutant.name.into(), about: mutant.about.into(), caught_by });
        }
        outln!("{table}");
        let fixtures = counted(cases.len(), "fixture");
        outln!("{}, {} caught by {fixtures}", counted(all.len(), "mutant"), all.len() - survivors.len());
        if sharp.contains(&false) {
            let ids = cases.iter().zip(&sharp).filter(|(_, sharp)| !**sharp).map(|(case, _)| case.case.id());
            outln!("catching no mutant: {}", ids.collect::<Vec<_>>().join(", "));
        }
        if !survivors.is_empty() {
            outln!("survived: {}", survivors.join(", "));
        }
        if !false_alarms.is_empty() {
            outln!("false alarms (the correct limiter fails these fixtures): {}", false_alarms.join(", "));
        }
        if args.selection.is_all() {
            let folder = args.out.clone().unwrap_or_else(default_out);
            let written = MutantReport::write_all(reports, &folder);
            written.map_err(|error| Failure::Usage(format!("--out {}: {error}", folder.display())))?;
        }
        if survivors.is_empty() && false_alarms.is_empty() { Ok(()) } else { Err(Failure::Failed) }
    })?
}

fn named(ids: &[String], all: bool) -> String {
    let shown = if all { ids.len() } else { ids.len().min(NAMED) };
    let more = ids.len() - shown;
    let mut out = ids[..shown].join("\n");
    if more > 0 {
        out.push_str(&format!("\nand {more} more"));
    }
    out
}
