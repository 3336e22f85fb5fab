//! What an application names: policies and rules, the gate, limiters around limiters, errors.
//!
//! Each adapter re-exports all of it, so that an application depends on the crate of its platform alone:
//!
//! ```ignore
//! use tidegate_redis::{Config, Millis, Policy, Quota, Redis};
//! ```

#[cfg(feature = "gate")]
pub use crate::gate::{self, Events, Gate, OnFailure, Rules};
pub use crate::{
    Block, BodyFormat, Check, ClientIpSource, Decision, ErasedLimiter, Error, ErrorKind, Identity, Key, Limiter,
    LimiterExt, Millis, Platform, Policy, Quota, Refund, Rejection, Settle, UnixMillis,
};
#[cfg(feature = "std")]
pub use crate::{DenyCache, Fallback, MemoryLimiter, Shadow, Sharded, Tiered, WhenFull};
