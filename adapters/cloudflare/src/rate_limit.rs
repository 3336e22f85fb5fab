#![doc = include_str!("../docs/rate_limit.md")]

mod error;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod host;
mod store;

pub use error::failed;
pub use store::{Binding, CAPABILITIES, RateLimit, RateLimitLimiter};
