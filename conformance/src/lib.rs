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
//! | [`subject`] | what answers: the guests of a target over HTTP, or a limiter in this process |
//! | [`replay`] | sends a fixture to a subject, and keeps the answers |
//! | [`judge`] | compares the answers with the reference's: a verdict, with its bounds and reasons |
//! | [`target`] | limiters on their platforms, or on local emulators of them |
//! | [`run`] | all of this, for whole targets |
//! | [`soak`] | the same with random traffic and faults |
//! | [`report`] | the results, for people, programs and CI |

// A full pipe makes the standard library's macros panic; see `output`.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod expectation;
mod expiry;
pub mod fixture;
pub mod judge;
pub mod reference;
pub mod replay;
pub mod report;
pub mod run;
pub mod soak;
pub mod subject;
mod suite;
pub mod target;

pub use expiry::Rows;
pub use suite::Suite;

// What only the programs of this repository use.
#[doc(hidden)]
pub mod declared;
#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod setup;
