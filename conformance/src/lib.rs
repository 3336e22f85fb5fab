//! Replays the same bursts against every adapter, and says with numbers which stores are exact and how far others drift.
//!
//! [`fixture`]s are data. [`replay`] drives them over a [`subject`], which is a [`target`]'s guests over HTTP or a
//! limiter in this process; [`judge`] holds the answers against those of the [`oracle`]; [`run`] does so for whole
//! targets and [`report`] tells of it. [`mutants`] prove that all this catches something. [`cli`] is the program `tidegate`.

pub mod cli;
pub mod compare;
pub mod expectation;
pub mod fixture;
pub mod judge;
pub mod mutants;
pub mod oracle;
pub mod replay;
pub mod report;
pub mod run;
pub mod subject;
pub mod target;
