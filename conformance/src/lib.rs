//! Replays the same bursts against every adapter, and reports with numbers which stores are exact and how far the others
//! drift.
//!
//! # Checking an adapter of your own
//!
//! [`Suite`] replays the fixtures that come with this crate against any [`Limiter`](tidegate_core::Limiter), in a test of
//! your own. The limiter is held to the [`Capabilities`](tidegate_core::Capabilities) that it declares: an exact one must
//! answer as the reference does, and an approximate one must stay within its drift. A server in any language can be
//! checked with `tidegate run --url URL --declares FILE`, if it speaks the protocol of the crate
//! `tidegate-guest-protocol`.
//!
//! # How it works
//!
//! [`fixture`]s are data. [`replay`] drives them over a [`subject`], which is a [`target`]'s guests over HTTP or a
//! limiter in this process. [`judge`] compares the answers with those of the [`oracle`]. [`run`] does so for whole
//! targets, and [`report`] prints the result. [`mutants`] prove that the suite catches broken limiters. [`cli`] is the
//! program `tidegate`.

pub mod cli;
pub mod compare;
pub mod declared;
pub mod expectation;
pub mod fixture;
pub mod judge;
pub mod mutants;
pub mod oracle;
pub mod replay;
pub mod report;
pub mod run;
pub mod setup;
pub mod subject;
mod suite;
pub mod target;

pub use suite::Suite;
