//! What a rules file would have done to the requests of an access log.
//!
//! [`Parser`] reads the lines of a log. [`Replay`] decides on each request with the real
//! [`Gate`](tidegate_core::gate::Gate), on the log's own time. [`Tally`] counts, [`Shadow`] compares two rules files, and
//! [`tune`] searches for smaller or larger limits. [`AccessReport`] is the result, with [`text`] and [`page`] for people. All
//! of them work on lines and requests: none opens a file.
//!
//! # Memory
//! It does not grow with the log. A line has at most [`MAX_LINE`] bytes, and counts are kept for at most [`MAX_CLIENTS`]
//! clients, which takes up to 300 MB. The requests of further clients are decided and counted too, and the report says how
//! many they are. A gate counts in a [`MemoryLimiter`](tidegate_core::MemoryLimiter) for four million keys. A search has up to
//! three gates for each number.

mod adapted;
mod clients;
mod combined;
mod entry;
mod fields;
mod json;
mod lines;
mod page;
mod parser;
mod replay;
mod report;
mod series;
mod shadow;
mod tally;
mod text;
mod time;
mod tune;

pub use adapted::{Adapted, Effect, Note, Number};
pub use clients::{Client, ClientReport, Denials, MAX_CLIENTS};
pub use entry::{Entry, Parsed, Unreadable};
pub use fields::{Field, Fields};
pub use lines::{Line, Lines, MAX_LINE};
pub use page::page;
pub use parser::Parser;
pub use replay::{Cause, Outcome, Replay};
pub use report::{AccessReport, SCHEMA, TuneReport};
pub use series::{Bucket, Series, SeriesReport};
pub use shadow::{DifferenceReport, Example, Shadow, ShadowReport};
pub use tally::{CauseReport, LineReport, Sample, Tally, Together};
pub use text::text;
pub use tune::{Tried, Tuned, tune};
