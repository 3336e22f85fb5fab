use std::fs;
use std::path::{Path, PathBuf};

use super::progress::{self, Progress};
use super::{Failure, Selection, block_on, contradicted};
use crate::declared::Declared;
use crate::fixture::Case;
use crate::judge::Verdict;
use crate::report::{Report, Status, junit, markdown, table};
use crate::run;
use crate::setup::Setup;
use crate::target::{ALL, Outside, Target, workspace};

const DECLARATION: &str = r#"A declaration for --declares; only "accuracy" is required:
  {
    "accuracy": "approximate",
    "ceiling": "limit x locations",
    "floor": { "held": 10, "within_ms": 2000 },
    "algorithms": ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency",
                   "penalty"],
    "max_quotas": 8, "dimensions": "any", "costs": true, "charge_denied": true,
    "peek": true, "refund": true, "reset": true, "idempotency": true, "round_trips": 1,
    "forgets_on_virtual_time": false
  }
"accuracy" is "exact", "approximate" or "per_location". Only an approximate limiter has a "ceiling": "limit",
"limit x locations" or "(in_flight + limit)! / (in_flight! x limit!) - 1". It may have a "floor": the units that each
location may hold back, and for how long. "dimensions" is "one", "grouped" or "any". "forgets_on_virtual_time" states that idempotency tokens expire by the
time in the request. All values above except the first three are the defaults."#;

#[derive(Debug, clap::Args)]
#[command(after_long_help = DECLARATION)]
pub(super) struct Args {
    /// Run only this target. May be repeated. The default is all targets.
    #[arg(long, value_name = "NAME")]
    target: Vec<String>,
    /// Test the server at this http:// URL instead of the targets. It must speak the guests' protocol. Repeat the
    /// option for several servers over one store.
    #[arg(long, value_name = "URL", requires = "declares", conflicts_with = "target")]
    url: Vec<String>,
    /// The declaration of the limiter behind --url: a JSON file, as shown in `tidegate run --help`.
    #[arg(long, value_name = "FILE", requires = "url")]
    declares: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Fail if one of these targets did not run. `all` stands for all selected targets.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    require: Vec<String>,
    /// The folder for report.json, report.md and junit.xml. The default is target/conformance in the workspace.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Install in the background what the targets need and this machine lacks. Each target runs as soon as it is set
    /// up. Changes outside the checkout need your consent: unless you are root, the command asks on a terminal.
    /// TIDEGATE_SETUP=yes or TIDEGATE_SETUP=no answers beforehand.
    #[arg(long)]
    setup: bool,
    /// Print report.json instead of the table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let cases = args.selection.load()?;
    let outside = match &args.declares {
        Some(file) => Some(block_on(Outside::at(&args.url, declared(file)?))?.map_err(Failure::Usage)?),
        None => None,
    };
    let targets = match &outside {
        Some(outside) => vec![outside as &dyn Target],
        None => named(&args.target)?,
    };
    let required = if args.require.iter().any(|name| name == "all") {
        targets.iter().map(|target| target.name()).collect()
    } else {
        named_only(&args.require)?
    };
    if let Some(name) = required.iter().find(|name| !targets.iter().any(|target| target.name() == **name)) {
        return Err(Failure::Usage(format!("--require {name}: this target is not selected; add --target {name}")));
    }
    let report = block_on(async {
        tokio::select! {
            report = replay(&targets, cases, args.setup) => report,
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
            eprintln!("tidegate: {} is required but did not run", target.name);
            failed = true;
        }
    }
    if report.targets.iter().all(|target| target.status == Status::Unavailable) {
        eprintln!("tidegate: no target ran");
        failed = true;
    }
    if failed { Err(Failure::Failed) } else { Ok(()) }
}

fn declared(file: &Path) -> Result<Declared, Failure> {
    let wrong = |message: String| Failure::Usage(format!("{}: {message}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    Declared::from_json(&text).map_err(wrong)
}

/// The last line, in a form that CI systems recognize.
fn tally(report: &Report) -> String {
    let fixtures = || report.targets.iter().flat_map(|target| &target.fixtures);
    let count = |verdict| fixtures().filter(|fixture| fixture.verdict == verdict).count();
    let (passed, failed) = (count(Verdict::Pass), count(Verdict::Fail));
    format!("{passed} passed, {failed} failed, {} skipped", fixtures().count() - passed - failed)
}

/// Runs the targets in order. With `setup`, targets whose setup is done run first.
async fn replay(targets: &[&dyn Target], cases: Vec<Case>, setup: bool) -> Result<Report, Failure> {
    let mut setup =
        if setup { Some(Setup::start(targets, progress::tell).await.map_err(Failure::Usage)?) } else { None };
    let prepared = run::prepare(cases).await.map_err(contradicted)?;
    let mut waiting = targets.to_vec();
    let mut reports = Vec::with_capacity(targets.len());
    while !waiting.is_empty() {
        let next = match &mut setup {
            Some(setup) => setup.ready(&waiting).await,
            None => 0,
        };
        let target = waiting.remove(next);
        let progress = Progress::new(target.name(), prepared.len());
        let report = run::target(target, &prepared, |done| progress.step(done)).await;
        progress.finish(&report);
        reports.push(report);
    }
    reports.sort_by_key(|report| targets.iter().position(|target| target.name() == report.name));
    Ok(Report::new(reports))
}

/// Returns the targets with these names in their usual order, or all targets if there are no names.
fn named(names: &[String]) -> Result<Vec<&dyn Target>, Failure> {
    named_only(names)?;
    let wanted = |target: &&'static dyn Target| names.is_empty() || names.iter().any(|name| name == target.name());
    Ok(ALL.iter().copied().filter(wanted).map(|target| target as &dyn Target).collect())
}

fn named_only(names: &[String]) -> Result<Vec<&str>, Failure> {
    match names.iter().find(|name| !ALL.iter().any(|target| target.name() == **name)) {
        Some(unknown) => {
            let known: Vec<&str> = ALL.iter().map(|target| target.name()).collect();
            Err(Failure::Usage(format!("{unknown:?} is not a target; the targets are {}", known.join(", "))))
        }
        None => Ok(names.iter().map(String::as_str).collect()),
    }
}

fn write(report: &Report, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("report.json"), serde_json::to_string_pretty(report)? + "\n")?;
    fs::write(folder.join("report.md"), markdown(report))?;
    fs::write(folder.join("junit.xml"), junit(report))
}
