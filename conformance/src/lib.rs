//! Replays the same bursts against every adapter, and reports which stores are exact and how far the others drift.
//!
//! # Checking an adapter of your own
//!
//! [`Suite`] replays the fixtures that come with this crate against any [`Limiter`](tidegate_core::Limiter), in a test
//! of your own crate. The limiter is judged by the [`Capabilities`](tidegate_core::Capabilities) that it declares: an
//! exact limiter must answer like the reference, and an approximate one must stay within its bounds. [`Suite::check_expiry`]
//! checks that the store removes the rows of unused keys. To check a server
//! in any language, run `tidegate run --url URL --declares FILE`. The server must speak the protocol of the crate
//! `tidegate-guest-protocol`.
//!
//! # How it works
//!
//! A [`fixture`] is data. [`replay`] runs it against a [`subject`]: the guests of a [`target`] over HTTP, or a limiter
//! in this process. [`judge`] compares the answers with those of the [`reference`]. [`run`] does this for whole targets,
//! and [`report`] formats the results. [`mutants`] are broken limiters that prove that the suite catches errors, and
//! [`peer`] compares with the rate limiters of others. [`mod@export`] writes the rules of a platform's own firewall, and
//! [`mod@bench`] compares what the benchmarks measured. [`cli`] is the program `tidegate`.

// A full pipe makes the standard library's macros panic; see `output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod bench;
pub mod cli;
pub mod compare;
pub mod declared;
pub mod expectation;
mod expiry;
pub mod export;
pub mod fixture;
pub mod judge;
pub mod mutants;
mod output;
pub mod peer;
pub mod predict;
pub mod reference;
pub mod replay;
pub mod report;
pub mod run;
pub mod setup;
pub mod soak;
pub mod subject;
mod suite;
pub mod target;

pub use expiry::Rows;
pub use suite::Suite;
