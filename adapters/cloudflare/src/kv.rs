#![doc = include_str!("../docs/kv.md")]

mod account;
mod bucket;
mod coarse;
mod config;
mod draws;
mod error;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod host;
mod isolate;
mod pace;
mod record;
mod slot;
mod stats;
mod store;
mod table;
mod value;

pub use config::{Config, Operations};
pub use error::failed;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use host::{SharedKv, WorkersKv};
pub use isolate::Isolate;
#[doc(hidden)]
pub use slot::Put;
pub use stats::Stats;
pub use store::{CAPABILITIES, DRIFT, KvLimiter};
#[doc(hidden)]
pub use value::Value;
