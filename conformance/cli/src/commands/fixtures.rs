use tidegate_conformance::fixture::Case;
use tidegate_harness::output::outln;

use crate::program::{Failure, Selection, counted};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidegate fixtures                                list all
  tidegate fixtures --fixtures tests/limits --rules rules.toml
                                                   check your own against the reference";

pub(super) fn run(selection: &Selection) -> Result<(), Failure> {
    let prepared = selection.prepared()?;
    let width = prepared.iter().map(|one| one.case.id().len()).max().unwrap_or(0);
    for one in &prepared {
        outln!("{:width$}  {}", one.case.id(), one.case.about());
    }
    let offered: u64 =
        prepared.iter().map(|one| if let Case::Decision(one) = &one.case { one.offered() } else { 0 }).sum();
    outln!("{}, {offered} decisions offered", counted(prepared.len(), "fixture"));
    Ok(())
}
