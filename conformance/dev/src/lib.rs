//! The program `tidegate-dev`, for the maintainers of this repository. `tidegate-dev --help` lists its commands.
//!
//! [`mutants`] are broken limiters that prove that the suite catches errors, and [`mistakes`] are those that the code once had. [`peer`] holds the rate limiters of others to their
//! claims. [`pages`] does what the start pages print. [`predict`] holds the simulator to what the targets did, and [`mod@bench`] compares what the
//! benchmarks measured. [`mod@rules_page`] is the reference of rules files.

// A full pipe makes the standard library's macros panic; see `tidegate_harness::output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod bench;
mod commands;
pub mod mistakes;
pub mod mutants;
pub mod pages;
pub mod peer;
pub mod predict;
pub mod rules_page;

pub use commands::main;
