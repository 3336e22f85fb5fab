//! Isolates over a model of Workers KV.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bounds;
mod convergence;
mod flood;
mod operations;
mod support;
