//! Exact rate limiting on Redis and Upstash. A decision is one Lua script and one round trip.
//!
//! [`Redis`] is an [`Atomic`](tidegate_core::store::Atomic) store: a Lua script repeats the core's integer arithmetic
//! inside the server. It decides and charges all quotas of a policy in one indivisible step, at any concurrency and from
//! any number of hosts. It supports Redis 6.2 and newer, Valkey, Upstash's `rediss://` endpoint and (feature `cluster`)
//! Redis Cluster. `Rest` (feature `rest`) does the same over Upstash's REST protocol, natively and on WebAssembly.
//! [`RedisOver`] does the same over a host's own Redis client, and needs no feature.
//!
//! ```no_run
//! use tidegate_redis::{Check, Config, Key, Limiter, Millis, Policy, Quota, Redis, UnixMillis};
//! # async fn run(now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! let limiter = Redis::new(Config::new("redis://127.0.0.1:6379"))?.limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! assert!(decision.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # Stored data
//! Each policy and key has one string under the core's storage key in braces: `{tg1:api:tb1000:ip:192.0.2.1}` holds
//! `tb1 3000 1800000000000;`, a token bucket's level and the instant of that level. The braces put it into one cluster slot
//! with `{…}:once:<hash>`, which holds the first answer to an idempotency token. Every key has a TTL: the time until all
//! its quotas are unused. A denial writes nothing.
//!
//! # Eviction
//! A full server whose `maxmemory-policy` is not `noeviction` evicts counts, and limits then admit more than they say. [`Redis`]
//! asks the server once, and logs a warning with `tracing`.
//!
//! # Clock
//! The server's clock decides unless [`Config::clock`] is set: it is one clock for all hosts. See [`Clock`].
//!
//! # Errors
//! An error is never a denial. Fail open only if [`ErrorKind::is_store_failure`](tidegate_core::ErrorKind::is_store_failure).
//!
//! - [`Unavailable`](tidegate_core::ErrorKind::Unavailable), at once: the server refuses the connection, or it was lost.
//! - [`Timeout`](tidegate_core::ErrorKind::Timeout), at the [deadline](Config::deadline): the server answers no call.
//! - [`Contended`](tidegate_core::ErrorKind::Contended), at the deadline: the server answers others, but is overloaded.
//! - [`Corrupt`](tidegate_core::ErrorKind::Corrupt): Tidegate cannot have written the stored value, which stays as it is.
//!
//! A script that may have run is never sent again. To retry it, give the check an idempotency token.
//!
//! # Features
//! - `resp` (default): the Redis protocol, on tokio.
//! - `tls-rustls`: `rediss://` URLs, with rustls.
//! - `cluster`: Redis Cluster.
//! - `rest`: Upstash's REST protocol. On WebAssembly, disable the default features.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answered;
#[cfg(feature = "resp")]
mod batch;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "resp")]
mod config;
#[cfg(feature = "resp")]
mod connection;
#[cfg(feature = "resp")]
mod dial;
#[cfg(feature = "resp")]
mod error;
#[cfg(feature = "resp")]
mod eviction;
#[cfg(feature = "resp")]
mod explain;
mod over;
#[cfg(any(feature = "resp", feature = "rest"))]
mod progress;
#[cfg(feature = "rest")]
mod rest;
mod script;
#[cfg_attr(
    not(any(feature = "resp", feature = "rest")),
    expect(dead_code, reason = "only our transports have a deadline")
)]
mod settings;
mod state;
#[cfg(feature = "resp")]
mod store;
#[cfg(feature = "tls-rustls")]
mod tls;
#[cfg(any(feature = "tls-rustls", all(feature = "rest", not(target_arch = "wasm32"))))]
mod trust;

#[cfg(feature = "resp")]
pub use config::Config;
#[cfg(feature = "resp")]
pub use explain::Explanation;
pub use over::{Answer, Connection, RedisOver};
#[cfg(all(feature = "rest", not(target_arch = "wasm32")))]
pub use rest::{Native, RestLimiter};
#[cfg(feature = "rest")]
pub use rest::{NoAnswer, Response, Rest, RestConfig, Transport};
pub use script::{LOCKING_SCRIPT, LOCKING_SCRIPT_SHA1, SCRIPT, SCRIPT_SHA1, batch_script};
pub use settings::Clock;
#[cfg(feature = "resp")]
pub use store::{Redis, RedisLimiter};
pub use tidegate_core::prelude::*;

#[cfg(all(doctest, feature = "resp"))]
#[doc = include_str!("../README.md")]
struct Readme;
