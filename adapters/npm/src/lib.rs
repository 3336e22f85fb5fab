//! What the npm package `@tidegate/edge` runs: quotas and keys checked, decisions on a store, responses. The TypeScript
//! beside it reads the options, takes a `Request` apart and hands out what this decides.
//!
//! It is built once for each store, for an edge loads every byte before its first request.
#![cfg(target_arch = "wasm32")]

#[cfg(feature = "blobs")]
mod blobs;
mod call;
mod error;
mod gate;
mod options;
#[cfg(feature = "upstash")]
mod upstash;
mod verdict;

pub use call::Caller;
pub use gate::Gate;
pub use verdict::undecided;

#[cfg(feature = "blobs")]
use blobs as store;
#[cfg(feature = "upstash")]
use upstash as store;
