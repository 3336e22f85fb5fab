//! Rate limiting with a stated accuracy: algorithms, keys, limiters and response fields.
//!
//! This crate makes the decisions. An adapter crate per platform stores the counts: `tidegate-redis`,
//! `tidegate-cloudflare`, `tidegate-spin` and others. Each re-exports the [`prelude`]. This crate is `no_std` with `alloc`. It reads no clock and does no
//! I/O: time is an argument, in whole milliseconds, and all arithmetic is on integers.
//!
//! ```
//! use tidegate_core::{
//!     BodyFormat, Check, ClientIpSource, Identity, Limiter, MemoryLimiter, Millis, Platform, Policy, Quota, Rejection,
//!     UnixMillis,
//! };
//!
//! # fn main() -> Result<(), tidegate_core::Error> {
//! # pollster::block_on(async {
//! // Bursts of 2, and one more request each second.
//! let policy = Policy::new("api", [Quota::token_bucket(2, 1, Millis::from_secs(1))?])?;
//! let limiter = MemoryLimiter::new();
//!
//! let headers = [("cf-connecting-ip", "192.0.2.1")];
//! let client_ip = ClientIpSource::new(Platform::Cloudflare).find(headers, None).ok();
//! let key = Identity { client_ip, ..Identity::default() }.resolve();
//!
//! let check = Check::new(&policy, &key, UnixMillis::new(1_800_000_000_000));
//! assert!(limiter.check(check).await?.is_allowed());
//! assert!(limiter.check(check).await?.is_allowed());
//! let denied = limiter.check(check).await?;
//! assert_eq!(denied.retry_after(), Some(Millis::from_secs(1)));
//! let response = Rejection::denied(&policy, &denied, BodyFormat::Json).unwrap();
//! assert_eq!(response.status_code(), 429);
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Choosing an algorithm
//!
//! A [`Policy`] has one to eight [`Quota`]s, each with one algorithm. It charges all of them or none.
//!
//! | Algorithm | Admits | State | Use it for |
//! |-|-|-|-|
//! | [`token_bucket`](Quota::token_bucket) | a burst of `capacity`, then `refill` every `per` | two integers | most APIs |
//! | [`fixed_window`](Quota::fixed_window) | `limit` per aligned window; up to twice that around a boundary | two integers | daily and monthly quotas |
//! | [`sliding_window`](Quota::sliding_window) | about `limit` in any window, estimated from two counters | three integers | a limit per minute without bursts at its boundaries |
//! | [`sliding_log`](Quota::sliding_log) | exactly `limit` in any window | one entry per request | small limits, such as login attempts |
//! | [`leaky_bucket`](Quota::leaky_bucket) | up to `capacity` waiting requests; states how long to [delay](Decision::delay) each | two integers | traffic for a fragile backend |
//! | [`concurrency`](Quota::concurrency) | `limit` requests in flight | one entry per request in flight | slow requests |
//! | [`penalty`](Quota::penalty) | nothing for a time that grows with each violation of the quotas beside it | two integers | clients that do not back off |
//!
//! GCRA is another form of the token bucket. The module [`algorithm`] documents the maximum that each admits.
//!
//! # Several keys in one decision
//!
//! The quotas of a policy may count by different keys, such as a user and the user's tenant: see [`Quota::by`]. They still
//! decide together: see [Dimensions](Policy#dimensions).
//!
//! # Costs that are known only afterwards
//!
//! Charge an estimate under a [token](Check::idempotent), and correct it with [`Limiter::settle`] when the request has ended.
//! What was charged too much is returned. What was charged too little becomes a debt, which denies requests until time has
//! repaid it.
//!
//! # Choosing a store
//!
//! [`Capabilities`] states what a [`Limiter`] supports. Its [`Accuracy`] is exact, approximate with a formula for the
//! maximum that is admitted, or per location. [`MemoryLimiter`] is exact within one process. The module [`store`] has the
//! traits for a new adapter. `Box<dyn ErasedLimiter>` holds a limiter that is selected at run time: see [`ErasedLimiter`].
//!
//! # Limiters around limiters
//!
//! | Limiter | What it adds |
//! |-|-|
//! | [`DenyCache`] | answers repeated denials without asking the store |
//! | [`Fallback`] | replaces a store that does not answer, within a stated bound |
//! | [`Tiered`] | asks a cheap limiter first, so that a flood does not reach the store |
//! | [`Sharded`] | spreads a hot key over several rows |
//! | [`Shadow`] | tries a proposed limit, and counts what it would change |
//!
//! # From a request to its response
//!
//! With the feature `gate`, a rules file says which limits apply to which requests. A [`gate::Gate`] matches a request, finds
//! its sender's keys, decides once, and returns what to send.
//!
//! # Keys
//!
//! A [`Key`] identifies who is counted. [`Identity`] selects the most trusted of a verified subject, a valid API key
//! (stored as a hash) and the client's address. [`ClientIpSource`] reads the address from where the platform reports it, and
//! never from a header that a client can send. An IPv6 address is reduced to its /64. Requests without an address share
//! [`Key::missing_ip`].
//!
//! # Errors
//!
//! An [`Error`] is not a denial. Its [`ErrorKind`] says what went wrong. Admit a request after an error only if
//! [`ErrorKind::is_store_failure`] is true (the store is unreachable, or did not answer in time): a client can cause every
//! other error on purpose. [`Rejection::unavailable`] is the 503 for the rest.
//!
//! # Guide
//!
//! The module [`guide`] has a page for each question that comes up in use: which key, what happens when the store dies, how to change
//! a limit, what to watch.
//!
//! # Features
//!
//! | Feature | Default | Adds |
//! |-|-|-|
//! | `std` | yes | [`MemoryLimiter`] and [`DenyCache`] |
//! | `serde` | no | `Deserialize` and `Serialize` for [`Policy`] and its parts |
//! | `gate` | no | the module `gate`: rules files, and one call from a request to its response |
//! | `toml` | no | rules files in TOML |
//! | `proxies` | no | `ClientIpSource::behind_proxies`, for a service behind nginx, Envoy or a load balancer |
#![cfg_attr(not(feature = "std"), no_std)]

extern crate alloc;

pub mod algorithm;
mod client_ip;
mod codec;
mod decision;
mod dimension;
mod error;
mod few;
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
mod limiter;
#[cfg(feature = "std")]
mod memory;
mod platform;
mod policy;
#[cfg(feature = "serde")]
mod policy_serde;
mod policy_state;
pub mod prelude;
mod quota;
mod rejection;
mod sha256;
mod sorted_map;
pub mod store;
mod time;

pub use client_ip::{ClientIp, Ipv6Prefix, MissingIp, Nat64Prefix};
pub use decision::{Decision, Origin, QuotaStatus, Status};
pub use dimension::{Dimension, Keys, StorageKeys};
pub use error::{Error, ErrorKind};
pub use headers::{RateLimitFields, ResponseFields};
pub use identity::Identity;
pub use key::{Key, KeySource};
pub use limiter::{
    Accuracy, BoxFuture, Capabilities, ChargeId, Check, Dimensions, Drift, ErasedLimiter, Floor, Idempotency, Limiter,
    Load, MaybeSend, MaybeSync, Refund, Settle,
};
#[cfg(feature = "std")]
pub use limiter::{DenyCache, Fallback, Health, Shadow, ShadowCounts, Sharded, Tiered};
#[cfg(feature = "std")]
pub use memory::MemoryLimiter;
pub use platform::{ClientIpSource, Platform};
pub use policy::Policy;
pub use policy_state::{Charge, PolicyState, QuotaState};
pub use quota::{Quota, Rule};
pub use rejection::{BodyFormat, Rejection};
pub use time::{MAX_CLOCK_SKEW, Millis, UnixMillis};
