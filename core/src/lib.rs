#![doc = include_str!("../README.md")]
//!
//! # Where to look
//!
//! | for | see |
//! |-|-|
//! | a page for each question that comes up in use: which algorithm, which key, what happens when the store dies | [`guide`] |
//! | the formula, the bound and the state of each algorithm | [`algorithm`] |
//! | quotas that decide together, by one key or several | [`Policy`] |
//! | a request, its cost and its token, and what corrects the cost afterwards | [`Check`], [`Settle`] |
//! | a key that an operator blocks | [`Block`] |
//! | units that a customer has bought | [`Grant`] |
//! | what a limiter supports, and its accuracy | [`Capabilities`], [`Accuracy`] |
//! | a limiter that is exact within one process | [`MemoryLimiter`] |
//! | limiters around limiters | [`DenyCache`], [`Fallback`], [`Tiered`], [`Sharded`], [`Shadow`] |
//! | a limiter that is selected at run time | [`ErasedLimiter`] |
//! | loans of a limit, which are spent without a round trip | [`lending`] |
//! | an adapter of your own | [`store`] |
//! | who is counted | [`Key`], [`Identity`], [`ClientIpSource`] |
//! | what to send | [`ResponseFields`], [`Rejection`] |
//! | a rules file, and one call from a request to its response | [`gate`] |
//! | the errors after which a request may pass | [`ErrorKind::is_store_failure`] |
#![cfg_attr(not(any(feature = "std", feature = "lending")), no_std)]

extern crate alloc;

pub mod algorithm;
#[cfg(feature = "lending")]
mod batches;
#[cfg(feature = "calendar")]
mod calendar;
mod client_ip;
mod codec;
mod decision;
mod dimension;
#[cfg(any(feature = "gate", feature = "serde"))]
mod document;
mod error;
#[cfg(feature = "gate")]
pub mod gate;
// Its examples need all of it.
#[cfg(all(any(doc, doctest), feature = "toml"))]
pub mod guide;
mod headers;
mod identity;
#[doc(hidden)]
pub mod internal;
mod key;
mod leb128;
pub mod lending;
mod limiter;
#[cfg(feature = "std")]
mod memory;
#[cfg(any(feature = "gate", feature = "proxies"))]
mod network;
mod platform;
mod policy;
mod policy_state;
pub mod prelude;
mod quota;
mod quoted_text;
mod rejection;
mod sha256;
mod small_vec;
mod sorted_map;
pub mod store;
#[cfg(any(feature = "calendar", feature = "gate", feature = "serde"))]
mod suggestion;
mod time;
mod warn_at;

#[cfg(feature = "calendar")]
pub use calendar::{Calendar, Every};
pub use client_ip::{ClientIp, MissingIp};
pub use decision::{Decision, Origin, QuotaStatus, Status};
pub use dimension::{Dimension, Keys, StorageKeys};
pub use error::{Error, ErrorKind};
pub use headers::{ExtraFields, ResponseFields};
pub use identity::Identity;
pub use key::Key;
pub use limiter::{
    Accuracy, Block, Capabilities, Ceiling, ChargeId, Check, Dimensions, Drift, ErasedLimiter, Floor, Grant,
    Idempotency, Limiter, LimiterExt, Load, MaybeSend, MaybeSync, Operation, Refund, Reply, Settle, limiter_fn,
};
#[cfg(feature = "std")]
pub use limiter::{DenyCache, Fallback, Health, Shadow, ShadowCounts, Sharded, Tiered};
#[cfg(feature = "std")]
pub use memory::{MemoryLimiter, WhenFull};
pub use platform::{ClientIpSource, Platform};
pub use policy::Policy;
pub use policy_state::{Charge, PolicyState, QuotaState};
pub use quota::{Quota, Rule};
pub use rejection::{BodyFormat, Rejection};
pub use time::{MAX_CLOCK_SKEW, Millis, UnixMillis};
