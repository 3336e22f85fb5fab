//! The WebAssembly of the npm package `@tidegate/edge`: it checks quotas and keys, decides on a store, and writes responses.
//! The TypeScript beside it reads the options and the fields of a `Request`, and returns the verdicts.
//!
//! It is built once for each store, and once for the gate, because an edge runtime loads every byte before its first request.
#![cfg(target_arch = "wasm32")]

#[cfg(not(feature = "rules"))]
mod call;
mod error;
#[cfg(not(feature = "rules"))]
mod gate;
#[cfg(feature = "kv")]
mod kv;
#[cfg(not(feature = "rules"))]
mod limit;
#[cfg(feature = "memory")]
mod memory;
#[cfg(not(feature = "rules"))]
mod numbers;
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
#[cfg(feature = "kv")]
mod seeded;
#[cfg(not(feature = "rules"))]
mod verdict;
#[cfg(feature = "versioned")]
mod versioned;
#[cfg(not(feature = "rules"))]
mod wire;

#[cfg(not(feature = "rules"))]
pub use call::Caller;
#[cfg(not(feature = "rules"))]
pub use gate::Gate;
#[cfg(feature = "memory")]
pub use memory::seed;
#[cfg(any(feature = "memory", feature = "redis", feature = "object"))]
pub use numbers::bytes_at;
#[cfg(not(feature = "rules"))]
pub use numbers::numbers_at;
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
