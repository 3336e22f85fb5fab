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

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::FromArgMatches;
use tidegate_conformance::output::errln;
use tidegate_conformance::target;

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

/// Adds examples to the help of commands that have no more to say.
#[must_use]
pub fn with_examples(mut program: clap::Command, examples: &[(&str, &str)]) -> clap::Command {
    for (name, examples) in examples {
        program = program.mut_subcommand(name, |one| one.after_help(format!("Examples:\n{examples}")));
    }
    program
}

/// Runs a program, and returns its exit code.
#[must_use]
pub fn main<C: FromArgMatches>(program: clap::Command, run: impl FnOnce(C) -> Result<(), Failure>) -> ExitCode {
    let name = program.get_name().to_string();
    let args = C::from_arg_matches(&program.get_matches()).unwrap_or_else(|error| error.exit());
    match run(args) {
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

/// Runs another program until standard input closes. Each program that starts targets has this command, under the name `guard`:
/// what a target starts is a child of the same executable.
#[derive(Debug, clap::Args)]
pub struct Guard {
    folder: PathBuf,
    #[arg(last = true)]
    command: Vec<String>,
}

impl Guard {
    /// See [`target::guard`].
    ///
    /// # Errors
    /// Fails if the program does not start.
    pub fn run(self) -> Result<(), Failure> {
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
pub fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Where the reports go, if nothing else is said.
#[must_use]
pub fn default_out() -> PathBuf {
    target::workspace().join("target/conformance")
}
