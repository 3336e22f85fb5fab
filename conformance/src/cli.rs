//! The command line of `tidegate`.

mod ask;
mod bench_report;
mod check;
mod choose;
mod compare;
mod explain;
mod export;
mod fixtures;
mod hash_key;
mod help;
mod mutants;
mod peers;
mod predict;
mod progress;
mod quota;
mod replay;
mod rules;
mod run;
mod simulate;
mod soak;
mod targets;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use wildmatch::WildMatch;

use crate::fixture::{self, Case};
use crate::output::errln;
use crate::target;

const EXAMPLES: &str = "\
Examples:
  tidegate check rules.toml                        say what is wrong with a rules file
  tidegate explain --rules rules.toml --request 'POST /login'
                                                   show the limits of a request
  tidegate replay --log access.log --rules rules.toml
                                                   show whom a rules file would have denied
  tidegate run --target redis                      show that Redis admits exactly what it should

`tidegate COMMAND --help` explains a command, with examples.
Exit codes: 0 success, 1 something failed or got worse, 2 the command line or an input is wrong, 130 interrupted.";

/// Checks and explains rate-limiting rules, says whom they would deny, recommends a store, and shows by test how exact each store is.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay fixtures on targets, and write report.html, report.md, report.json and junit.xml.
    Run(run::Args),
    /// List the targets, how exact they are, and whether they can run here.
    Targets,
    /// Show what changed from report to report. Exit with 1 if the last one is worse than the one before it.
    Compare(compare::Args),
    /// Print what `compare` and `run --baseline` need of a report, to be committed.
    Summary(compare::SummaryArgs),
    /// Print how exact the targets of a report are, by WinterTC's runtime keys, as JSON to embed elsewhere.
    Exactness(compare::SummaryArgs),
    /// Print a badge with the result of a report, as SVG.
    Badge(compare::BadgeArgs),
    /// Compare what the benchmarks measured with their peers, and write bench.html and bench.json. Exit with 1 if a benchmark
    /// failed.
    BenchReport(bench_report::Args),
    /// Check a rules file: say what is wrong or probably a mistake, and where. Exit with 1 if the file is not valid.
    Check(check::Args),
    /// Show which rule, keys and limits of a rules file apply to a request, and why.
    Explain(explain::Args),
    /// Print the hash of an API key on standard input, as rules files list it.
    HashKey(hash_key::Args),
    /// Write the rate-limiting rules of a platform's own firewall, for what they can express of a rules file. Exit with 1 if that
    /// is nothing.
    Export(export::Args),
    /// Replay an access log: show whom a rules file would have denied, when, and by which limit. Exit with 1 if more clients are
    /// denied than allowed.
    Replay(replay::Args),
    /// Send random traffic with faults to a target, and judge every answer. Exit with 1 on a violation.
    Soak(soak::Args),
    /// Run the adapters in a simulated fleet, and show for each design how far it exceeds the limit, how long decisions take and
    /// what they cost.
    Simulate(simulate::Args),
    /// Simulate the designs of a platform, and recommend one for a limit, with the code to paste. Exit with 1 if none meets the
    /// requirements.
    Choose(choose::Args),
    /// Predict by the simulator what the targets of a report do with the fixtures, and compare. Exit with 1 if one differs.
    Predict(predict::Args),
    /// Check the fixtures against the reference, and list them.
    Fixtures(Selection),
    /// Show which fixtures catch each deliberately broken limiter. Exit with 1 if one survives.
    Mutants(mutants::Args),
    /// Replay the fixtures on other rate limiters, and show how each differs from what it claims. Exit with 1 if one could not
    /// run.
    Peers(peers::Args),
    /// Run a program until standard input closes.
    #[command(hide = true)]
    Guard {
        folder: PathBuf,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

/// Selects fixtures.
#[derive(Debug, clap::Args)]
struct Selection {
    /// The folder of fixtures. The default is the workspace's folder.
    #[arg(long, value_name = "DIR")]
    fixtures: Option<PathBuf>,
    /// The rules file, in TOML or JSON, of gate fixtures that have none. Every limit counts in the target's store,
    /// whichever store the rules name.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Select only fixtures whose id matches, for example 'token-bucket/*'. May be repeated.
    #[arg(long, value_name = "GLOB")]
    filter: Vec<String>,
}

/// Why a command failed.
#[derive(Debug)]
enum Failure {
    /// The command ran and found failures, which it has printed.
    Failed,
    /// The command line or an input is wrong. The message says why.
    Usage(String),
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let matches = help::grouped(Args::command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let done = match args.command {
        Command::Run(args) => run::run(args),
        Command::Targets => targets::run(),
        Command::Soak(args) => soak::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Choose(args) => choose::run(args),
        Command::Compare(args) => compare::run(&args),
        Command::Summary(args) => compare::summarize(&args),
        Command::Exactness(args) => compare::exactness(&args),
        Command::Badge(args) => compare::show_badge(&args),
        Command::BenchReport(args) => bench_report::run(&args),
        Command::HashKey(args) => hash_key::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Fixtures(selection) => fixtures::run(&selection),
        Command::Mutants(args) => mutants::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Guard { folder, command } => target::guard(folder, &command).map_err(Failure::Usage),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed) => ExitCode::from(1),
        Err(Failure::Interrupted) => {
            errln!("tidegate: interrupted");
            ExitCode::from(130)
        }
        Err(Failure::Usage(message)) => {
            errln!("tidegate: {message}");
            ExitCode::from(2)
        }
    }
}

impl Selection {
    /// Whether all fixtures of the workspace are selected.
    const fn is_all(&self) -> bool {
        self.fixtures.is_none() && self.rules.is_none() && self.filter.is_empty()
    }

    /// Loads the selected fixtures.
    fn load(&self) -> Result<Vec<Case>, Failure> {
        let folder = self.fixtures.as_deref().unwrap_or(fixture::shipped());
        let rules = self.rules.as_deref().map(rules::for_one_store).transpose()?;
        let cases = fixture::load(folder, rules.as_ref()).map_err(|problems| {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Failure::Usage(format!("{} in the fixtures\n{}", counted(lines.len(), "problem"), lines.join("\n")))
        })?;
        self.filtered(cases)
    }

    fn filtered(&self, cases: Vec<Case>) -> Result<Vec<Case>, Failure> {
        if self.filter.is_empty() {
            return Ok(cases);
        }
        let mut wanted = vec![false; cases.len()];
        for text in &self.filter {
            let pattern = WildMatch::new(text);
            let matching = cases.iter().enumerate().filter(|(_, case)| pattern.matches(case.id()));
            let places: Vec<usize> = matching.map(|(place, _)| place).collect();
            if places.is_empty() {
                let mut groups: Vec<&str> = cases.iter().filter_map(|case| case.id().split('/').next()).collect();
                groups.dedup();
                return Err(Failure::Usage(format!(
                    "--filter {text:?} matches no fixture; write '<group>/<name>', where * matches any text; \
                     the groups are {} (`tidegate fixtures` lists all)",
                    groups.join(", ")
                )));
            }
            for place in places {
                wanted[place] = true;
            }
        }
        Ok(cases.into_iter().zip(wanted).filter(|(_, wanted)| *wanted).map(|(case, _)| case).collect())
    }
}

/// Runs a future on this thread only, so that all requests of a burst are sent before the first answer is read.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| Failure::Usage(format!("no runtime: {error}")))?.block_on(future))
}

fn contradicted(wrong: Vec<String>) -> Failure {
    let wrong = wrong.join("\n  ");
    Failure::Usage(format!("these fixtures contradict the reference:\n  {wrong}"))
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Where the reports go, if nothing else is said.
fn default_out() -> PathBuf {
    target::workspace().join("target/conformance")
}
