use std::path::{Path, PathBuf};

use super::{Failure, counted};
use crate::compare::changes;
use crate::report::{Report, SCHEMA};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The earlier report.json.
    before: PathBuf,
    /// The later report.json.
    after: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let changes = changes(&read(&args.before)?, &read(&args.after)?);
    for change in &changes {
        println!("{change}");
    }
    let worse = changes.iter().filter(|change| change.worse).count();
    println!("{}, {worse} of them worse", counted(changes.len(), "change"));
    if worse > 0 { Err(Failure::Failed) } else { Ok(()) }
}

fn read(file: &Path) -> Result<Report, Failure> {
    let wrong = |message: String| Failure::Usage(format!("{}: {message}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut json = serde_json::Deserializer::from_str(&text);
    let report: Report = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| wrong(format!("{}: {}; is it a report.json?", error.path(), error.inner())))?;
    if report.schema != SCHEMA {
        return Err(wrong(format!("schema: is {:?}; this version reads {SCHEMA:?}", report.schema)));
    }
    Ok(report)
}
