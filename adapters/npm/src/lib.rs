//! The WebAssembly of the npm package `@tidegate/edge`. The package loads the feature `toml` alone, with which its gate reads rules
//! files in TOML. The TypeScript beside it does the rest.
//!
//! The other features are for the tests, which compare the TypeScript with them: `rules-toml` is the gate, and the stores have a
//! limiter each.
#![cfg(target_arch = "wasm32")]

#[cfg(any(feature = "object", feature = "redis"))]
mod borrowing;
#[cfg(feature = "memory")]
mod calendar;
#[cfg(feature = "rules-toml")]
mod error;
#[cfg(feature = "kv")]
mod kv;
#[cfg(feature = "reference")]
mod limit;
#[cfg(feature = "memory")]
mod memory;
#[cfg(any(feature = "reference", feature = "rules-toml"))]
mod numbers;
#[cfg(feature = "object")]
mod object;
#[cfg(feature = "reference")]
mod options;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "reference")]
mod reference;
#[cfg(feature = "rules-toml")]
mod rules;
#[cfg(feature = "reference")]
mod sender;
#[cfg(feature = "reference")]
mod shared;
#[cfg(feature = "toml")]
mod toml;
#[cfg(feature = "versioned")]
mod versioned;

#[cfg(feature = "memory")]
pub use calendar::{boundaries, zones};
#[cfg(feature = "kv")]
pub use kv::seed;
#[cfg(feature = "reference")]
pub use limit::Limit;
#[cfg(feature = "memory")]
pub use memory::seed;
#[cfg(feature = "object")]
pub use object::ObjectCounter;
#[cfg(feature = "reference")]
pub use reference::undecided;
#[cfg(feature = "rules-toml")]
pub use rules::{RulesCaller, RulesGate};
#[cfg(feature = "reference")]
pub use shared::{bytes_at, left_at, numbers_at, push};

/// Reads a text in TOML. Returns JSON: see [`toml::to_json`].
#[cfg(feature = "toml")]
#[wasm_bindgen::prelude::wasm_bindgen]
#[must_use]
pub fn read(text: &str) -> String {
    toml::to_json(text)
}

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
