//! Rate limiting that says exactly how exact it is.
//!
//! This crate decides; the adapters only carry the decision to a platform's own store. It is `no_std` (with `alloc`),
//! reads no clock and does no I/O: time is an argument, and every number is a whole one.
//!
//! ```
//! use tidegate_core::{Millis, Policy, Quota, UnixMillis};
//! # fn main() -> Result<(), tidegate_core::Error> {
//! let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//! let (mut state, now) = (policy.initial_state(), UnixMillis::new(1_800_000_000_000));
//! let admitted = (0..50).filter(|_| policy.decide(&mut state, now, 1).is_allowed()).count();
//! assert_eq!(admitted, 10);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod algorithm;
mod client_ip;
mod codec;
mod decision;
mod error;
mod few;
mod headers;
mod identity;
#[doc(hidden)]
pub mod internal;
mod key;
mod limiter;
#[cfg(feature = "std")]
mod memory;
mod platform;
#[cfg(feature = "serde")]
mod policy_serde;
mod policy_state;
mod quota;
mod rejection;
mod sha256;
mod sorted_map;
pub mod store;
mod time;

pub use client_ip::{ClientIp, Ipv6Prefix, MissingIp, Nat64Prefix};
pub use decision::{Decision, Origin, QuotaStatus, Status};
pub use error::{Error, ErrorKind};
pub use headers::{RateLimitFields, ResponseFields};
pub use identity::Identity;
pub use key::{Key, KeySource};
#[cfg(feature = "std")]
pub use limiter::DenyCache;
pub use limiter::{
    Accuracy, BoxFuture, Capabilities, Check, Drift, ErasedLimiter, Floor, Idempotency, Limiter, Load, MaybeSend,
    MaybeSync, Refund,
};
#[cfg(feature = "std")]
pub use memory::MemoryLimiter;
pub use platform::{ClientIpSource, Platform};
pub use policy_state::{PolicyState, QuotaState};
pub use quota::{Policy, Quota, Rule};
pub use rejection::{BodyFormat, Rejection};
pub use time::{Millis, UnixMillis};
