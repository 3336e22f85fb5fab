//! The WebAssembly of the npm package `@tidegate/edge`: it checks quotas and keys, decides on a store, and writes responses.
//! The TypeScript beside it reads the options and the fields of a `Request`, and returns the verdicts.
//!
//! It is built once for each store, because an edge runtime loads every byte before its first request.
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

/// Takes half the code of the standard library's allocator.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();
