use std::fs;
use std::io::ErrorKind;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use futures_util::StreamExt as _;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use tidegate_conformance::declared::Declared;
use tidegate_conformance::fixture::Case;
use tidegate_conformance::judge::Verdict;
use tidegate_conformance::reference::Prepared;
use tidegate_conformance::report::{Status, TargetReport};
use tidegate_conformance::run::prepare_all;
use tidegate_core::internal::Suggestion;
use tidegate_harness::output::{errln, out, outln};
use tidegate_harness::report::{MutantReport, Report, junit, markdown, page, table};
use tidegate_harness::run;
use tidegate_harness::setup::Setup;
use tidegate_harness::target::{ALL, Deployment, Live, Outside, PLATFORMS, Target, logs_in};

use super::compare::{is_worse, read_one};
use crate::program::{Failure, Progress, Selection, block_on, default_out, tell};

/// How many targets run at the same time by default for each processor. A target waits for much of its time: until a store has hung for a
/// second, a process has ended or started, or a write is on its disk.
const JOBS_PER_PROCESSOR: usize = 2;

/// The most targets that run at the same time by default. One thread sends the requests of all.
const JOBS_MAX: usize = 8;

const MORE: &str = r#"After Ctrl-C, the report has the targets that have ended, and the others are unavailable.

Examples:
  tidegate run                                     run every target that this machine supports
  tidegate run --target redis --require redis      fail if Redis is not installed
  tidegate run --filter 'token-bucket/*'           run some of the fixtures
  tidegate run --target memory --fixtures tests/limits --rules rules.toml
                                                   test rules of your own
  tidegate run --live cloudflare --target cloudflare-do --filter 'token-bucket/*'
                                                   deploy a guest to your account, test it, and remove it
  tidegate run --live fastly --dry-run             show the commands, and run those that change nothing

A declaration for --declares; only "accuracy" is required:
  {
    "accuracy": "approximate",
    "ceiling": "limit",
    "floor": { "held": 10, "within_ms": 2000 }, "grace": 1,
    "algorithms": ["fixed_window", "sliding_window", "sliding_log", "token_bucket", "leaky_bucket", "concurrency",
                   "penalty", "calendar_window"],
    "max_quotas": 8, "dimensions": "any", "costs": true, "charge_denied": true,
    "peek": true, "refund": true, "reset": true, "block": true, "idempotency": true, "round_trips": 1,
    "forgets_on_virtual_time": false, "gate": true
  }
"accuracy" is "exact", "approximate" or "per_location". Only an approximate limiter has a "ceiling": "limit",
"limit x locations" or "(in_flight + limit)! / (in_flight! x limit!) - 1". It may have a "floor": the units that each
location may hold back, and for how long. It may have a "grace": the units of a key that each location may admit beyond
the ceiling, before it has heard of the key. "dimensions" is "one", "grouped" or "any". "forgets_on_virtual_time" states
that idempotency tokens expire by the time in the request. "gate" is false if the server reads no rules files. All values
above except the first four are the defaults."#;

#[derive(Debug, clap::Args)]
#[command(after_help = MORE)]
pub(super) struct Args {
    /// Run only these targets. May be repeated. The default is all targets.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    target: Vec<String>,
    /// Test the server at this URL instead of the targets. It must speak the guests' protocol. Repeat the
    /// option for several servers over one store.
    #[arg(long, value_name = "URL", requires = "declares", conflicts_with = "target")]
    url: Vec<String>,
    /// The declaration of the limiter behind --url: a JSON file, as shown in `tidegate run --help`.
    #[arg(long, value_name = "FILE", requires = "url")]
    declares: Option<PathBuf>,
    /// Deploy a guest to your account at this platform, run its targets there, and remove everything. The platform's token is
    /// an environment variable; the command names it if it is missing.
    #[arg(long, value_name = "PLATFORM", value_parser = platform_names(), conflicts_with_all = ["url", "setup"])]
    live: Option<String>,
    /// With --live: run the dry runs of the platform's own tool, and serve the guest on the local emulator. Every fixture is
    /// unverified.
    #[arg(long, requires = "live")]
    dry_run: bool,
    #[command(flatten)]
    selection: Selection,
    /// Fail if one of these targets did not run. `all` stands for all selected targets.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    require: Vec<String>,
    /// The folder for report.html, report.md, report.json and junit.xml. The default is target/conformance in the workspace.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare the result with this report or summary, and fail if something got worse. Only what has run is compared.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Do not fail because these targets and fixtures are worse than the baseline, for example 'spin-atomics' for what
    /// concerns the whole target, or '* race/two-keys'.
    #[arg(long, value_name = "GLOB", requires = "baseline")]
    allow: Vec<String>,
    /// Install in the background what the targets need and this machine lacks. Each target runs as soon as it is set
    /// up. Changes outside the checkout need your consent: unless you are root, the command asks on a terminal.
    /// TIDEGATE_SETUP=yes or TIDEGATE_SETUP=no answers beforehand.
    #[arg(long)]
    setup: bool,
    /// The number of targets that run at the same time. The default is two for each processor, and at most 8. With more
    /// than one, the latencies are those of a busy machine.
    #[arg(long, short, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print report.json instead of the table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let out = args.out.clone().unwrap_or_else(default_out);
    let unwritable = |error: std::io::Error| Failure::Usage(format!("--out {}: {error}", out.display()));
    let baseline = args.baseline.as_deref().map(read_one).transpose()?;
    // If this run ends early, the report of an earlier one must not be taken for its own.
    for name in REPORTS {
        match fs::remove_file(out.join(name)) {
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(unwritable(error));
            }
            _ => {}
        }
    }
    let cases = args.selection.load()?;
    let outside = match &args.declares {
        Some(file) => Some(block_on(Outside::at(&args.url, declared(file)?))?.map_err(Failure::Usage)?),
        None => None,
    };
    let live = args.live.as_deref().and_then(|name| PLATFORMS.iter().find(|platform| platform.name == name));
    let targets = match (&outside, live) {
        (Some(outside), _) => vec![outside as &dyn Target],
        (None, Some(platform)) => of_platform(&args.target, platform.name, platform.targets)?,
        (None, None) => named(&args.target)?,
    };
    let required = if args.require.iter().any(|name| name == "all") {
        targets.iter().map(|target| target.name()).collect()
    } else {
        named_only(&args.require)?
    };
    if let Some(name) = required.iter().find(|name| !targets.iter().any(|target| target.name() == **name)) {
        return Err(Failure::Usage(format!("--require {name}: this target is not selected; add --target {name}")));
    }
    // A run takes minutes, so an unwritable folder is reported before it.
    tempfile::tempfile_in(create(&out).map_err(unwritable)?).map_err(unwritable)?;
    logs_in(out.join("logs"));
    let mut failed = false;
    let (mut report, interrupted) = block_on(async {
        let deployment = match live {
            Some(platform) => Some(Deployment::start(platform, args.dry_run, tell).await.map_err(Failure::Usage)?),
            None => None,
        };
        let deployed = deployment.iter().flat_map(Deployment::targets).collect::<Vec<Live>>();
        let targets = targets.into_iter().map(|target| {
            let deployed = deployed.iter().find(|live| live.name() == target.name());
            deployed.map_or(target, |live| live as &dyn Target)
        });
        let targets: Vec<&dyn Target> = targets.collect();
        // A platform limits what one client sends at a time.
        let jobs = if deployment.is_some() { args.jobs.map_or(1, NonZeroUsize::get) } else { jobs(args.jobs) };
        let mut replay = Replay::default();
        let ended = tokio::select! {
            ended = replay.run(&targets, cases, args.setup, jobs) => ended,
            _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted),
        };
        if let Some(Err(reason)) = OptionFuture::from(deployment.map(Deployment::remove)).await {
            errln!("tidegate: {reason}");
            failed = true;
        }
        let interrupted = match ended {
            Err(Failure::Interrupted) if !replay.reports.is_empty() => true,
            ended => ended.map(|()| false)?,
        };
        Ok::<_, Failure>((replay.report(&targets), interrupted))
    })??;
    report.command = command(&args);
    report.mutants = MutantReport::read_all(&out);
    write(&report, &out).map_err(unwritable)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
    } else {
        out!("{}", table(&report));
    }
    errln!("\nreport.html, report.md, report.json and junit.xml are in {}", out.display());
    if interrupted {
        return Err(Failure::Interrupted);
    }
    failed |= report.failed();
    let tested = |target: &&TargetReport| !matches!(target.status, Status::Unavailable | Status::NotApplicable);
    for target in report.targets.iter().filter(|target| !tested(target)) {
        if required.contains(&target.name.as_str()) {
            let reason = target.reason.as_deref().unwrap_or_default();
            errln!("tidegate: {} is required but was not tested: {reason}", target.name);
            failed = true;
        }
    }
    if let Some(baseline) = baseline {
        failed |= is_worse(&report, baseline, &args.allow);
    }
    if !report.targets.iter().any(|target| tested(&target)) {
        errln!("tidegate: no target was tested");
        failed = true;
    }
    if !args.json {
        outln!("{}", tally(&report));
    }
    if failed { Err(Failure::Failed) } else { Ok(()) }
}

/// The command that runs one fixture on one target with these options.
fn command(args: &Args) -> String {
    let mut words = vec!["tidegate run".to_string()];
    let mut option = |name: &str, value: &str| words.push(format!("--{name} {}", quoted(value)));
    match &args.declares {
        Some(file) => {
            args.url.iter().for_each(|url| option("url", url));
            option("declares", &file.to_string_lossy());
        }
        None => option("target", "{target}"),
    }
    if let Some(platform) = &args.live {
        option("live", platform);
    }
    for (name, path) in [("fixtures", &args.selection.fixtures), ("rules", &args.selection.rules)] {
        if let Some(path) = path {
            option(name, &path.to_string_lossy());
        }
    }
    option("filter", "{fixture}");
    words.join(" ")
}

/// Quotes a word for a shell if it needs that.
fn quoted(word: &str) -> String {
    let plain = |char: char| char.is_alphanumeric() || "{}/._-:".contains(char);
    if word.chars().all(plain) { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
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

fn jobs(wanted: Option<NonZeroUsize>) -> usize {
    let processors = || available_parallelism().map_or(1, NonZeroUsize::get);
    wanted.map_or_else(|| (processors() * JOBS_PER_PROCESSOR).min(JOBS_MAX), NonZeroUsize::get)
}

/// The targets that have run so far, on these fixtures.
#[derive(Default)]
struct Replay {
    prepared: Vec<Prepared>,
    reports: Vec<TargetReport>,
}

impl Replay {
    /// Runs the targets, up to `jobs` at the same time. With `setup`, targets whose setup is done run first.
    async fn run(
        &mut self,
        targets: &[&dyn Target],
        cases: Vec<Case>,
        setup: bool,
        jobs: usize,
    ) -> Result<(), Failure> {
        let mut setup = if setup { Some(Setup::start(targets, tell).await.map_err(Failure::Usage)?) } else { None };
        self.prepared = prepare_all(cases).await;
        let mut waiting = targets.to_vec();
        // The first one is the quickest. The others end with the quick ones, so that no long one runs alone at the end.
        if let [_, others @ ..] = &mut waiting[..] {
            others.reverse();
        }
        let mut running = FuturesUnordered::new();
        loop {
            let ready = async {
                match &mut setup {
                    Some(setup) => setup.ready(&waiting).await,
                    None => 0,
                }
            };
            tokio::select! {
                next = ready, if !waiting.is_empty() && running.len() < jobs => {
                    let target = waiting.remove(next);
                    let progress = Progress::new(target.name(), self.prepared.len(), waiting.len());
                    running.push(one(target, &self.prepared, progress));
                }
                Some(report) = running.next() => self.reports.push(report),
                else => return Ok(()),
            }
        }
    }

    /// The report has the targets in this order. Those that have not ended were interrupted.
    fn report(mut self, targets: &[&dyn Target]) -> Report {
        let reports = targets.iter().map(|target| {
            let ended = self.reports.iter().position(|report| report.name == target.name());
            let interrupted = || {
                let report = TargetReport::new(target.name(), &target.declared().capabilities.accuracy);
                report.ended(Status::Unavailable, "interrupted before its end".into())
            };
            ended.map_or_else(interrupted, |place| self.reports.swap_remove(place))
        });
        Report::new(reports.collect()).with_plans(&self.prepared)
    }
}

async fn one(target: &dyn Target, prepared: &[Prepared], progress: Progress) -> TargetReport {
    let report = run::target(target, prepared, |done| progress.step(done)).await;
    progress.finish(&report);
    report
}

/// Returns the targets with these names in their usual order, or all targets if there are no names.
fn named(names: &[String]) -> Result<Vec<&'static dyn Target>, Failure> {
    named_only(names)?;
    let wanted = |target: &&'static dyn Target| names.is_empty() || names.iter().any(|name| name == target.name());
    Ok(ALL.iter().copied().filter(wanted).collect())
}

/// The names of the platforms, for the command line.
fn platform_names() -> Vec<&'static str> {
    PLATFORMS.iter().map(|platform| platform.name).collect()
}

/// The same of a platform's own targets.
fn of_platform(names: &[String], platform: &str, own: &[&str]) -> Result<Vec<&'static dyn Target>, Failure> {
    if let Some(name) = names.iter().find(|name| !own.contains(&name.as_str())) {
        let suggestion = Suggestion::of(name, own);
        return Err(Failure::Usage(format!("{name:?} is not a target of --live {platform}; {suggestion}")));
    }
    let selected = own.iter().filter(|own| names.is_empty() || names.iter().any(|name| name == *own));
    named(&selected.map(|name| (*name).to_string()).collect::<Vec<_>>())
}

/// Returns the target with this name.
pub(super) fn target(name: &str) -> Result<&'static dyn Target, Failure> {
    named(&[name.to_string()]).map(|found| found[0])
}

fn named_only(names: &[String]) -> Result<Vec<&str>, Failure> {
    match names.iter().find(|name| !ALL.iter().any(|target| target.name() == **name)) {
        Some(unknown) => {
            let known: Vec<&str> = ALL.iter().map(|target| target.name()).collect();
            Err(Failure::Usage(format!("{unknown:?} is not a target; {}", Suggestion::of(unknown, &known))))
        }
        None => Ok(names.iter().map(String::as_str).collect()),
    }
}

/// What a run writes.
const REPORTS: [&str; 4] = ["report.json", "report.html", "report.md", "junit.xml"];

fn create(folder: &Path) -> std::io::Result<&Path> {
    fs::create_dir_all(folder)?;
    Ok(folder)
}

fn write(report: &Report, folder: &Path) -> std::io::Result<()> {
    fs::write(folder.join("report.json"), serde_json::to_string(report)? + "\n")?;
    fs::write(folder.join("report.html"), page(report)?)?;
    fs::write(folder.join("report.md"), markdown(report))?;
    fs::write(folder.join("junit.xml"), junit(report))
}
