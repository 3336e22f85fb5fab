#![doc = include_str!("../README.md")]

#[cfg(feature = "durable-objects")]
pub mod durable_objects;
#[cfg(feature = "kv")]
pub mod kv;
#[cfg(feature = "rate-limit")]
pub mod rate_limit;

#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod analytics;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod incoming;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod per_isolate;

#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use analytics::AnalyticsSink;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use incoming::{Incoming, after, check, outcome, unavailable, with_fields};
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use per_isolate::PerIsolate;
pub use tidegate_core::prelude::*;
