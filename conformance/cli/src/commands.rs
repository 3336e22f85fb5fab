//! The command line of `tidegate`.

mod ask;
mod check;
mod choose;
mod compare;
mod explain;
mod export;
mod fixtures;
mod hash_key;
mod help;
mod quota;
mod replay;
mod run;
mod serve;
mod simulate;
mod soak;
mod targets;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use crate::program::{self, Selection};

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
    /// Check a rules file: say what is wrong or probably a mistake, and where. Exit with 1 if the file is not valid.
    Check(check::Args),
    /// Show which rule, keys and limits of a rules file apply to a request, and why.
    Explain(explain::Args),
    /// Replay an access log: show whom a rules file would have denied, when, and by which limit. Exit with 1 if more clients are
    /// denied than allowed.
    Replay(replay::Args),
    /// Write the rate-limiting rules of a platform's own firewall, for what they can express of a rules file. Exit with 1 if that
    /// is nothing.
    Export(export::Args),
    /// Print the hash of an API key on standard input, as rules files list it.
    HashKey(hash_key::Args),
    /// Simulate the designs of a platform, and recommend one for a limit, with the code to paste. Exit with 1 if none meets the
    /// requirements.
    Choose(choose::Args),
    /// Run the adapters in a simulated fleet, and show for each design how far it exceeds the limit, how long decisions take and
    /// what they cost.
    Simulate(simulate::Args),
    /// Show what changed from report to report. Exit with 1 if the last one is worse than the one before it.
    Compare(compare::Args),
    /// Print what `compare` and `run --baseline` need of a report, to be committed.
    #[command(after_help = compare::SUMMARY_EXAMPLES)]
    Summary(compare::SummaryArgs),
    /// Print how exact the targets of a report are, by WinterTC's runtime keys, as JSON to embed elsewhere.
    #[command(after_help = compare::EXACTNESS_EXAMPLES)]
    Exactness(compare::SummaryArgs),
    /// Replay fixtures on targets, and write report.html, report.md, report.json and junit.xml.
    Run(run::Args),
    /// List the targets, how exact they are, and whether they can run here.
    #[command(after_help = targets::EXAMPLES)]
    Targets,
    /// Check the fixtures against the reference, and list them.
    #[command(after_help = fixtures::EXAMPLES)]
    Fixtures(Selection),
    /// Send random traffic with faults to a target, and judge every answer. Exit with 1 on a violation.
    Soak(soak::Args),
    /// Answer Envoy's rate limit service by a rules file, over gRPC.
    Serve(serve::Args),
    /// Print a badge with the result of a report, as SVG.
    Badge(compare::BadgeArgs),
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    program::main(help::grouped(Args::command()), |args: Args| match args.command {
        Command::Check(args) => check::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Export(args) => export::run(&args),
        Command::HashKey(args) => hash_key::run(&args),
        Command::Choose(args) => choose::run(args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Summary(args) => compare::summarize(&args),
        Command::Exactness(args) => compare::exactness(&args),
        Command::Run(args) => run::run(args),
        Command::Targets => targets::run(),
        Command::Fixtures(selection) => fixtures::run(&selection),
        Command::Soak(args) => soak::run(&args),
        Command::Serve(args) => serve::server::run(&args),
        Command::Badge(args) => compare::show_badge(&args),
    })
}
