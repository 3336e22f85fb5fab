//! The program `tidegate`, for users. `tidegate --help` lists its commands.
//!
//! [`export`] writes the rules of a platform's own firewall, and [`compare`] tells what changed from report to report. [`program`]
//! is what other programs around the suite need, too.

// A full pipe makes the standard library's macros panic; see `tidegate_harness::output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod commands;
pub mod compare;
pub mod export;
pub mod program;

pub use commands::main;
