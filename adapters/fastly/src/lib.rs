//! Rate limiting on Fastly Compute, by one of two stores:
//!
//! | | [`Kv`] | [`Erl`] |
//! |-|-|-|
//! | counts in | KV Store, by compare-and-swap | Fastly's own Edge Rate Limiting |
//! | a policy is | up to eight quotas of any algorithm | one sliding window of 1, 10 or 60 s |
//! | admitted | at most limit x locations | about limit x locations, by Fastly's word |
//! | it is for | quotas that must hold, on keys that are not hammered | keeping a flood out |
//!
//! Compute starts a fresh instance for each request, so nothing is kept between requests but in the store. Its API
//! blocks: every future here is ready when it is first polled, and any executor will do.
//!
//! ```
//! use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! use tidegate_fastly::{KeyValue, Kv};
//! # fn run(store: impl KeyValue, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In an app: Kv::open("tidegate")?
//! let limiter = Kv::new(store).limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
//! let decision = pollster::block_on(limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)))?;
//! # Ok(())
//! # }
//! ```
//!
//! The client's address is what `Request::get_client_ip_addr` tells, handed to
//! [`ClientIpSource::find`](tidegate_core::ClientIpSource::find) for
//! [`Platform::Fastly`](tidegate_core::Platform::Fastly): never the field `Fastly-Client-IP`, which a client can send.
//!
//! # Errors
//! A store that is not linked to the service is [`Invalid`](tidegate_core::ErrorKind::Invalid), when it is opened. What
//! a check can end in stands with [`Kv`] and [`Erl`]. None is ever a denial.

mod erl;
mod error;
mod kv;
#[cfg(target_os = "wasi")]
mod platform;

pub use erl::{CAPABILITIES as ERL_CAPABILITIES, Erl, ErlLimiter, Rates, Window};
pub use kv::{CAPABILITIES as KV_CAPABILITIES, DRIFT, Inserted, KeyValue, Kv, KvLimiter, Only, Stats};
