//! Replays the same bursts against every adapter, and reports which stores are exact and how far the others drift.
//!
//! # Checking an adapter of your own
//!
//! [`Suite`] replays the fixtures that come with this crate against any [`Limiter`](tidegate_core::Limiter), in a test
//! of your own crate. The limiter is judged by the [`Capabilities`](tidegate_core::Capabilities) that it declares: an
//! exact limiter must answer like the reference, and an approximate one must stay within its bounds. [`Suite::check_expiry`]
//! checks that the store removes the rows of unused keys.
//!
//! The program `tidegate`, a crate of its own, checks a server in any language: `tidegate run --url URL --declares FILE`. The
//! server must speak the protocol of the crate `tidegate-guest-protocol`.
//!
//! # How it works
//!
//! | module | |
//! |-|-|
//! | [`fixture`] | bursts and what to expect of them, as data |
//! | [`mod@reference`] | the answers of an exact limiter to a fixture |
//! | [`declared`] | what a limiter declares, by which it is judged |
//! | [`subject`] | what answers, such as a limiter in this process |
//! | [`replay`] | sends a fixture to a subject, and keeps the answers |
//! | [`judge`] | compares the answers with the reference's: a verdict, with its bounds and reasons |
//! | [`run`] | all of this, for many fixtures |
//! | [`report`] | the results |
//! | [`operation`] | what the decisions did at their store |
//!
//! The crate `tidegate-harness` runs the same on real platforms and their emulators, with random traffic and faults, and writes
//! reports for people, programs and CI.

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod declared;
mod expectation;
mod expiry;
pub mod fixture;
pub mod judge;
pub mod operation;
pub mod reference;
pub mod replay;
pub mod report;
pub mod run;
pub mod subject;
mod suite;

pub use expiry::Rows;
pub use suite::Suite;

// What only the programs of this repository use.
#[doc(hidden)]
pub mod json;
