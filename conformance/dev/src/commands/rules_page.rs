use std::fs;

use tidegate::program::Failure;
use tidegate_harness::output::outln;
use tidegate_harness::target::workspace;

use crate::rules_page::page;

const EXAMPLES: &str = "\
Examples:
  tidegate-dev rules-page                          write the page
  tidegate-dev rules-page --check                  exit with 1 if the page is not what the schema gives";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Write nothing.
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let wrong = |file: &str, error: &dyn std::fmt::Display| Failure::Usage(format!("{file}: {error}"));
    let (page_file, schema_file) = ("core/docs/rules.md", "core/rules.schema.json");
    let read = |file: &str| fs::read_to_string(workspace().join(file)).map_err(|error| wrong(file, &error));
    let schema = serde_json::from_str(&read(schema_file)?).map_err(|error| wrong(schema_file, &error))?;
    let old = read(page_file)?;
    let new = page(&old, &schema).map_err(|error| wrong(page_file, &error))?;
    if new == old {
        return Ok(());
    }
    if args.check {
        outln!("{page_file} is not what {schema_file} gives; run cargo make rules-page");
        return Err(Failure::Failed);
    }
    fs::write(workspace().join(page_file), new).map_err(|error| wrong(page_file, &error))
}
