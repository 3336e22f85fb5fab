//! Rate limiting on Fastly Compute, on one of two stores:
//!
//! | | [`Kv`] | [`Erl`] |
//! |-|-|-|
//! | counts in | KV Store, by compare-and-swap | Fastly's own Edge Rate Limiting |
//! | policies | up to eight quotas of any algorithm | one sliding window of 1, 10 or 60 s |
//! | admits | at most limit x locations | about limit x locations, according to Fastly |
//! | use it for | limits that must hold, on keys with moderate traffic | keeping floods out |
//!
//! Compute runs a new instance for each request, so all state is in the store. The platform's API blocks: every future here is
//! ready when it is first polled, and any executor works.
//!
//! ```
//! use tidegate_fastly::{Check, Key, KeyValue, Kv, Limiter, Millis, Policy, Quota, UnixMillis};
//! # fn run(store: impl KeyValue, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In an app: Kv::open("tidegate")?
//! let limiter = Kv::new(store).limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
//! let decision = pollster::block_on(limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)))?;
//! # Ok(())
//! # }
//! ```
//!
//! `check` asks a [`Gate`] about a request of the crate `fastly`, by a file of rules. The client's
//! address is that of `Request::get_client_ip_addr`, and not the field `Fastly-Client-IP`, which a client can send.
//!
//! # Errors
//! A store that is not linked to the service is [`Invalid`](tidegate_core::ErrorKind::Invalid), from `open`. [`Kv`] and [`Erl`] list
//! the errors of a check. None of them is a denial. Only [`Unavailable`](tidegate_core::ErrorKind::Unavailable) may let a
//! request through: a client can cause the others.

mod erl;
mod error;
#[cfg(target_os = "wasi")]
mod host;
#[cfg(target_os = "wasi")]
mod incoming;
mod kv;

pub use erl::{CAPABILITIES as ERL_CAPABILITIES, Erl, ErlLimiter, Rates, Window};
#[cfg(target_os = "wasi")]
pub use incoming::{Incoming, check, outcome, with_fields};
pub use kv::{CAPABILITIES as KV_CAPABILITIES, DRIFT, Inserted, KeyValue, Kv, KvLimiter, Only, Stats};
pub use tidegate_core::prelude::*;
