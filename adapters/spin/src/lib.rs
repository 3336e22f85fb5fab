#![doc = include_str!("../README.md")]

pub mod atomics;
mod ballot;
mod bucket;
mod counter;
mod error;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(all(target_arch = "wasm32", any(feature = "spin-sdk", feature = "spin-sdk-7")))]
mod incoming;
pub mod kv;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod respond;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod sdk_5;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk-7"))]
pub mod sdk_7;
pub mod window;

pub use atomics::{SpinAtomics, SpinAtomicsLimiter};
pub use bucket::{Atomics, Bucket};
#[cfg(target_arch = "wasm32")]
pub use host::{SpinStore, WasiBucket};
#[cfg(all(target_arch = "wasm32", any(feature = "spin-sdk", feature = "spin-sdk-7")))]
pub use incoming::Incoming;
pub use kv::{SpinKv, SpinKvLimiter};
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub use redis::{RedisConnection, SpinRedis, SpinRedisLimiter};
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use respond::respond;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use sdk_5::{check, outcome, with_fields};
pub use tidegate_core::prelude::*;
#[cfg(feature = "redis")]
pub use tidegate_redis::Clock;
pub use window::SpinWindow;
