//! The command line of `tidegate-dev`.

mod bench_report;
mod mistakes;
mod mutants;
mod pages;
mod peers;
mod predict;
mod rules_page;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use tidegate::program;

const EXIT_CODES: &str = "\
`tidegate-dev COMMAND --help` explains a command, with examples.
Exit codes: 0 success, 1 something failed, 2 the command line or an input is wrong, 130 interrupted.";

/// Tests the conformance suite and the simulator, and follows the start pages, and compares Tidegate with the rate limiters of others.
#[derive(Debug, Parser)]
#[command(name = "tidegate-dev", version, after_help = EXIT_CODES)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show which fixtures catch each deliberately broken limiter. Exit with 1 if one survives.
    Mutants(mutants::Args),
    /// Put each past mistake back into the code, and run the test that was written for it. Exit with 1 if the test passes.
    Mistakes(mistakes::Args),
    /// Follow the start pages: write their files into an empty folder, run their commands, and compare what is printed. Exit with 1 if
    /// one does not work.
    Pages(pages::Args),
    /// Replay the fixtures on other rate limiters, and show how each differs from what it claims. Exit with 1 if one could not
    /// run.
    Peers(peers::Args),
    /// Predict by the simulator what the targets of a report do with the fixtures, and compare. Exit with 1 if one differs.
    Predict(predict::Args),
    /// Compare what the benchmarks measured with their peers, and write bench.html and bench.json. Exit with 1 if a benchmark
    /// failed.
    BenchReport(bench_report::Args),
    /// Write the reference part of core/docs/rules.md, as the schema of rules files has it.
    RulesPage(rules_page::Args),
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    program::main(Args::command(), |args: Args| match args.command {
        Command::Mutants(args) => mutants::run(&args),
        Command::Mistakes(args) => mistakes::run(&args),
        Command::Pages(args) => pages::run(&args),
        Command::Peers(args) => peers::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::BenchReport(args) => bench_report::run(&args),
        Command::RulesPage(args) => rules_page::run(&args),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_two_examples() {
        for one in Args::command().get_subcommands() {
            let examples = one.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.matches("\n  tidegate-dev ").count() >= 2, "{}: {examples}", one.get_name());
        }
    }
}
