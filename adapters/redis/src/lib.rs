//! Exact rate limiting on Redis and Upstash: one script, one round trip a decision.
//!
//! [`Redis`] is an [`Atomic`](tidegate_core::store::Atomic) store: a Lua script repeats the core's integer arithmetic
//! inside the server, so a policy's quotas are decided and charged in one indivisible step, at any concurrency and from
//! any number of hosts. It speaks the Redis protocol to Redis 6.2 or newer, Valkey, Upstash's `rediss://` endpoint, and
//! (feature `cluster`) a Redis Cluster. `Rest` (feature `rest`) is the same over Upstash's REST protocol, natively and, over
//! the host's own HTTP client, on WebAssembly. [`RedisOver`] is the same over a host's own Redis client; it needs no feature.
//!
//! ```no_run
//! use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! use tidegate_redis::{Config, Redis};
//! # async fn run(now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! let limiter = Redis::new(Config::new("redis://127.0.0.1:6379"))?.limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! assert!(decision.is_allowed());
//! # Ok(())
//! # }
//! ```
//!
//! # What is stored
//! One string a policy and key, under the core's storage key in braces: `{tg1:api:tb1000:ip:192.0.2.1}` holds
//! `tb1 3000 1800000000000;`, which is a token bucket's level and its instant. The braces make it one cluster slot together with
//! `{…}:once:<hash>`, which keeps the first answer to an idempotency token. Every key has a TTL: the time until all its
//! quotas are unused again. A denial writes nothing.
//!
//! # Errors
//! A server that refuses the connection is [`Unavailable`](tidegate_core::ErrorKind::Unavailable) at once; one that does
//! not answer is [`Timeout`](tidegate_core::ErrorKind::Timeout) at the [deadline](Config::deadline). A script that may have
//! run is never sent again: to retry it, give the check an idempotency token. A stored value that Tidegate did not write
//! is [`Corrupt`](tidegate_core::ErrorKind::Corrupt) and left as it is.
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
mod explain;
mod over;
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
pub use script::{LOCKING_SCRIPT, LOCKING_SCRIPT_SHA1, SCRIPT, SCRIPT_SHA1};
pub use settings::Clock;
#[cfg(feature = "resp")]
pub use store::{Redis, RedisLimiter};
