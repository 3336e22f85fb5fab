use std::fs;
use std::path::{Path, PathBuf};

use super::progress::Progress;
use super::{Failure, Selection, block_on, contradicted};
use crate::judge::Verdict;
use crate::report::{Report, Status, junit, markdown, table};
use crate::run;
use crate::target::{ALL, Target, workspace};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this target; several times for several. All of them by default.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    #[command(flatten)]
    selection: Selection,
    /// Fail where one of these targets did not run; `all` for every one that was asked for.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    require: Vec<String>,
    /// Where report.json, report.md and junit.xml go; target/conformance in the workspace by default.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print report.json instead of the table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let targets = named(&args.target)?;
    let required = if args.require.iter().any(|name| name == "all") {
        targets.iter().map(|target| target.name()).collect()
    } else {
        named_only(&args.require)?
    };
    if let Some(name) = required.iter().find(|name| !targets.iter().any(|target| target.name() == **name)) {
        return Err(Failure::Usage(format!("--require {name} is none of the targets to run; add --target {name}")));
    }
    let cases = args.selection.load()?;
    let report = block_on(async {
        tokio::select! {
            report = replay(&targets, cases) => report,
            _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
        }
    })??;
    let out = args.out.unwrap_or_else(|| workspace().join("target/conformance"));
    write(&report, &out).map_err(|error| Failure::Usage(format!("{}: {error}", out.display())))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
    } else {
        print!("{}", table(&report));
    }
    eprintln!("\nreport.json, report.md and junit.xml are in {}", out.display());
    if !args.json {
        println!("{}", tally(&report));
    }
    let mut failed = report.failed();
    for target in report.targets.iter().filter(|target| target.status == Status::Unavailable) {
        if required.contains(&target.name.as_str()) {
            eprintln!("tidegate: {} is required and did not run", target.name);
            failed = true;
        }
    }
    if report.targets.iter().all(|target| target.status == Status::Unavailable) {
        eprintln!("tidegate: no target ran");
        failed = true;
    }
    if failed { Err(Failure::Failed) } else { Ok(()) }
}

/// The closing line, in the form that CI systems look for.
fn tally(report: &Report) -> String {
    let fixtures = || report.targets.iter().flat_map(|target| &target.fixtures);
    let count = |verdict| fixtures().filter(|fixture| fixture.verdict == verdict).count();
    let (passed, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    format!("{passed} passed, {failed} failed, {} skipped", fixtures().count() - passed - failed)
}

async fn replay(targets: &[&'static dyn Target], cases: Vec<crate::fixture::Case>) -> Result<Report, Failure> {
    let prepared = run::prepare(cases).await.map_err(contradicted)?;
    let mut reports = Vec::with_capacity(targets.len());
    for target in targets {
        let progress = Progress::new(target.name(), prepared.len());
        let report = run::target(*target, &prepared, |done| progress.step(done)).await;
        progress.finish(&report);
        reports.push(report);
    }
    Ok(Report::new(reports))
}

/// The targets of these names, in their usual order; all where none is named.
fn named(names: &[String]) -> Result<Vec<&'static dyn Target>, Failure> {
    named_only(names)?;
    let wanted = |target: &&dyn Target| names.is_empty() || names.iter().any(|name| name == target.name());
    Ok(ALL.iter().copied().filter(wanted).collect())
}

fn named_only(names: &[String]) -> Result<Vec<&str>, Failure> {
    match names.iter().find(|name| !ALL.iter().any(|target| target.name() == **name)) {
        Some(unknown) => {
            let known: Vec<&str> = ALL.iter().map(|target| target.name()).collect();
            Err(Failure::Usage(format!("{unknown:?} is no target; there are {}", known.join(", "))))
        }
        None => Ok(names.iter().map(String::as_str).collect()),
    }
}

fn write(report: &Report, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(report)? + "\n")?;
    fs::write(folder.join("report.md"), markdown(report))?;
    fs::write(folder.join("junit.xml"), junit(report).map_err(std::io::Error::other)?)
}
