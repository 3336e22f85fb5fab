//! The WebAssembly of the npm package `@tidegate/edge`: it checks quotas and keys, decides on a store, and writes responses.
//! The TypeScript beside it reads the options and the fields of a `Request`, and returns the verdicts.
//!
//! It is built once for each store, because an edge runtime loads every byte before its first request.
#![cfg(target_arch = "wasm32")]

mod call;
mod error;
mod gate;
#[cfg(feature = "kv")]
mod kv;
mod limit;
#[cfg(feature = "memory")]
mod memory;
mod numbers;
#[cfg(feature = "object")]
mod object;
mod options;
#[cfg(feature = "rate-limit")]
mod rate_limit;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "kv")]
mod seeded;
mod verdict;
#[cfg(feature = "versioned")]
mod versioned;
mod wire;

pub use call::Caller;
pub use gate::Gate;
#[cfg(feature = "memory")]
pub use memory::seed;
#[cfg(any(feature = "memory", feature = "redis"))]
pub use numbers::bytes_at;
pub use numbers::numbers_at;
pub use verdict::undecided;

#[cfg(feature = "kv")]
use kv as store;
#[cfg(feature = "memory")]
use memory as store;
#[cfg(feature = "object")]
use object as store;
#[cfg(feature = "rate-limit")]
use rate_limit as store;
#[cfg(feature = "redis")]
use redis as store;
#[cfg(feature = "versioned")]
use versioned as store;

/// Takes half the code of the standard library's allocator.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();
