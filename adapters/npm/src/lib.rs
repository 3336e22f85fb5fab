//! The WebAssembly of the npm package `@tidegate/edge`: the gate, and what decides by the stored bytes of Workers KV and of stores with
//! conditional writes. The TypeScript beside it does the rest.
//!
//! It is built once for each of them, because an edge runtime loads every byte before its first request. The feature `reference` is for
//! the tests: it has what the TypeScript does by itself, too.
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
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "reference")]
mod reference;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "reference")]
mod sender;
#[cfg(not(feature = "rules"))]
mod shared;
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
#[cfg(feature = "reference")]
pub use reference::undecided;
#[cfg(not(feature = "rules"))]
pub use shared::{bytes_at, left_at, numbers_at, push};

#[cfg(feature = "rules")]
pub use rules::{RulesCaller, RulesGate};

#[cfg(feature = "kv")]
use kv as store;
#[cfg(feature = "memory")]
use memory as store;
#[cfg(feature = "object")]
use object as store;
#[cfg(feature = "redis")]
use redis as store;
#[cfg(feature = "versioned")]
use versioned as store;

/// Takes half the code of the standard library's allocator.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();
