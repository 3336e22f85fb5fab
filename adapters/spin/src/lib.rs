#![doc = include_str!("../README.md")]

mod ballot;
mod bucket;
mod counter;
mod error;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod incoming;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod respond;
mod store;
mod window;

pub use bucket::{Atomics, Bucket};
#[cfg(target_arch = "wasm32")]
pub use host::{SpinStore, WasiBucket};
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use incoming::{Incoming, check, outcome, with_fields};
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub use redis::{RedisConnection, SpinRedis, SpinRedisLimiter};
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use respond::respond;
pub use store::{CAPABILITIES_ATOMICS, CAPABILITIES_KV, SpinAtomics, SpinAtomicsLimiter, SpinKv, SpinKvLimiter};
pub use tidegate_core::prelude::*;
#[cfg(feature = "redis")]
pub use tidegate_redis::Clock;
pub use window::{CAPABILITIES_WINDOW, SpinWindow};
