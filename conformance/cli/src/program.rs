//! What the programs around the suite share: how they begin and end, the fixtures that a command line selects, and progress.

mod progress;
mod reports;
pub(crate) mod rules;
mod selection;

pub(crate) use progress::Progress;
pub use progress::tell;
pub use reports::report;
pub(crate) use reports::{deserialized, versioned};
pub use selection::Selection;

use std::fmt::Display;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgMatches, Args as _, FromArgMatches};
use tidegate_harness::output::errln;
use tidegate_harness::target;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The command ran and found failures, which it has printed.
    Failed,
    /// The command line or an input is wrong. The message says why.
    Usage(String),
    /// The user pressed Ctrl-C.
    Interrupted,
}

/// Runs a program, and returns its exit code. Beside its own commands, it has the command `guard`, because what a target starts is a
/// child of the same executable.
#[must_use]
pub fn main<A: FromArgMatches>(program: clap::Command, run: impl FnOnce(A) -> Result<(), Failure>) -> ExitCode {
    let name = program.get_name().to_string();
    let guard = Guard::augment_args(clap::Command::new("guard").hide(true));
    let matches = program.subcommand(guard).get_matches();
    let done = match matches.subcommand() {
        Some(("guard", matches)) => read::<Guard>(matches).run(),
        _ => run(read(&matches)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed) => ExitCode::from(1),
        Err(Failure::Interrupted) => {
            errln!("{name}: interrupted");
            ExitCode::from(130)
        }
        Err(Failure::Usage(message)) => {
            errln!("{name}: {message}");
            ExitCode::from(2)
        }
    }
}

fn read<A: FromArgMatches>(matches: &ArgMatches) -> A {
    A::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// Run a program until standard input closes.
#[derive(Debug, clap::Args)]
struct Guard {
    folder: PathBuf,
    #[arg(last = true)]
    command: Vec<String>,
}

impl Guard {
    fn run(self) -> Result<(), Failure> {
        target::guard(self.folder, &self.command).map_err(Failure::Usage)
    }
}

/// Runs a future on this thread only, so that all requests of a burst are sent before the first answer is read.
///
/// # Errors
/// Fails if this machine has no resources for a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|error| Failure::Usage(format!("no runtime: {error}")))?.block_on(future))
}

/// A number of something, in words.
#[must_use]
pub fn counted<N: Display + From<u8> + PartialEq>(count: N, what: &str) -> String {
    if count == N::from(1) { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Where the reports go, if nothing else is said.
#[must_use]
pub fn default_out() -> PathBuf {
    target::workspace().join("target/conformance")
}
