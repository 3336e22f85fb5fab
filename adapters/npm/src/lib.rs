//! The WebAssembly of the npm package `@tidegate/edge`: it checks quotas and keys, decides on a store, and writes responses.
//! The TypeScript beside it reads the options and the fields of a `Request`, and returns the verdicts.
//!
//! It is built once for each store, and once for the gate, because an edge runtime loads every byte before its first request.
#![cfg(target_arch = "wasm32")]

#[cfg(any(feature = "object", feature = "redis"))]
mod borrowing;
#[cfg(feature = "rules")]
mod error;
#[cfg(feature = "kv")]
mod kv;
#[cfg(not(feature = "rules"))]
mod limit;
#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "object")]
mod object;
#[cfg(not(feature = "rules"))]
mod options;
#[cfg(feature = "rate-limit")]
mod rate_limit;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "rules")]
mod rules;
#[cfg(not(feature = "rules"))]
mod shared;
#[cfg(not(feature = "rules"))]
mod verdict;
#[cfg(feature = "versioned")]
mod versioned;

#[cfg(feature = "kv")]
pub use kv::seed;
#[cfg(not(feature = "rules"))]
pub use limit::Limit;
#[cfg(feature = "memory")]
pub use memory::seed;
#[cfg(feature = "object")]
pub use object::ObjectCounter;
#[cfg(not(feature = "rules"))]
pub use shared::{bytes_at, left_at, numbers_at, push};
#[cfg(not(feature = "rules"))]
pub use verdict::undecided;

#[cfg(feature = "rules")]
pub use rules::{RulesCaller, RulesGate};

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
