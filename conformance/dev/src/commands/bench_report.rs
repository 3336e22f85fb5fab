use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use tidegate::program::{Failure, counted};
use tidegate_harness::output::{errln, out, outln};
use tidegate_harness::target::workspace;

use crate::bench::{BenchReport, page, table};

const EXAMPLES: &str = "\
Examples:
  tidegate-dev bench-report bench.jsonl            write bench.html and bench.json
  tidegate-dev bench-report - --quick < bench.jsonl
                                                   of shortened benchmarks";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What the benchmarks wrote to the file that TIDEGATE_BENCH names. `-` reads standard input.
    #[arg(value_name = "FILE.jsonl")]
    file: PathBuf,
    /// The folder for bench.html and bench.json. The default is target/bench in the workspace.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A benchmark that failed. May be repeated. The report names it, and the command fails.
    #[arg(long, value_name = "NAME")]
    failed: Vec<String>,
    /// Say that the durations were shortened by TIDEGATE_BENCH_QUICK.
    #[arg(long)]
    quick: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let out = args.out.clone().unwrap_or_else(|| workspace().join("target/bench"));
    let wrong = |message: String| Failure::Usage(format!("{}:{message}", args.file.display()));
    let lines = text(&args.file).map_err(|error| wrong(format!(" {error}")))?;
    let mut report = BenchReport::read(&lines).map_err(wrong)?;
    report.failed.clone_from(&args.failed);
    report.quick = args.quick;
    out!("{}", table(&report));
    write(&report, &out).map_err(|error| Failure::Usage(format!("--out {}: {error}", out.display())))?;
    let (reached, aims) = report.aims();
    outln!("{}; {reached} of {} reached", counted(report.measurements.len(), "measurement"), counted(aims, "aim"));
    errln!("bench.html and bench.json are in {}", out.display());
    if report.failed.is_empty() {
        return Ok(());
    }
    errln!("tidegate-dev: failed: {}; the report has what they measured before", report.failed.join(", "));
    Err(Failure::Failed)
}

fn text(file: &Path) -> std::io::Result<String> {
    if file != Path::new("-") {
        return fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}

fn write(report: &BenchReport, folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("bench.json"), serde_json::to_string(report)? + "\n")?;
    fs::write(folder.join("bench.html"), page(report)?)
}
