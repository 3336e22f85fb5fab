#![doc = include_str!("../README.md")]
#![cfg(target_arch = "wasm32")]

mod analytics;
mod gate;
mod per_isolate;

pub use analytics::AnalyticsSink;
pub use gate::{Incoming, check, outcome, with_fields};
pub use per_isolate::PerIsolate;
