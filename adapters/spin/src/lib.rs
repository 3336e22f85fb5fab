//! Rate limiting in a [Spin] app.
//!
//! Spin runs a new instance of an app for every request. An instance remembers nothing, so all counts are in a store. There is
//! one limiter for each kind of store:
//!
//! | limiter | needs | exact |
//! |-|-|-|
//! | [`SpinAtomics`] | `wasi:keyvalue` with a reliable compare-and-swap: Spin's SQLite store | yes |
//! | [`SpinWindow`] | `wasi:keyvalue` with `increment`: Spin's SQLite and Redis stores | yes, for one fixed window and requests that cost 1 |
//! | [`SpinKv`] | get and put: every store, that of Akamai Functions too | no |
//! | `SpinRedis` (feature `redis`) | a Redis server that the app may connect to | yes |
//!
//! ```
//! use tidegate_spin::{Check, Key, Limiter, Millis, Policy, Quota, SpinAtomics, UnixMillis};
//! # async fn run(bucket: impl tidegate_spin::Atomics, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In a Spin app: SpinAtomics::open("default")?.limiter()
//! let limiter = SpinAtomics::new(bucket).limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! - `redis`: `SpinRedis`, the limiter on a Redis server.
//! - `spin-sdk`: `check`, a [`Gate`] for requests of the crate `spin-sdk`, and `respond`, which sends a
//!   response in one TCP segment. Without it, each answer on a keep-alive connection takes some 40 ms on Spin.
//!
//! # Limits
//! - The key-value stores have no expiry. Each client keeps a bounded number of rows: one with `SpinKv`, two with
//!   `SpinAtomics`, at most three with `SpinWindow`. A client that never returns keeps them, too.
//! - The limiters on key-value stores have no idempotency tokens. `SpinRedis` has them.
//!
//! # Errors
//! - [`Invalid`](tidegate_core::ErrorKind::Invalid): spin.toml does not list the store or the Redis server, or the store is of
//!   the wrong kind for the limiter.
//! - [`Contended`](tidegate_core::ErrorKind::Contended): too many requests compete for one key, or the store is busy.
//! - [`Unavailable`](tidegate_core::ErrorKind::Unavailable): the store failed.
//! - [`Corrupt`](tidegate_core::ErrorKind::Corrupt): a row that Tidegate did not write.
//!
//! None of them is a denial. Only `Unavailable` may let a request through: a client can cause the others.
//!
//! [Spin]: https://spinframework.dev

mod ballot;
mod bucket;
mod counter;
mod error;
#[cfg(target_arch = "wasm32")]
mod host;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod incoming;
#[cfg(feature = "redis")]
mod redis;
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
mod respond;
mod store;
mod window;

pub use bucket::{Atomics, Bucket};
#[cfg(target_arch = "wasm32")]
pub use host::{SpinStore, WasiBucket};
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use incoming::{Incoming, check, outcome, with_fields};
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub use redis::{RedisConnection, SpinRedis, SpinRedisLimiter};
#[cfg(all(target_arch = "wasm32", feature = "spin-sdk"))]
pub use respond::respond;
pub use store::{CAPABILITIES_ATOMICS, CAPABILITIES_KV, SpinAtomics, SpinAtomicsLimiter, SpinKv, SpinKvLimiter};
pub use tidegate_core::prelude::*;
#[cfg(feature = "redis")]
pub use tidegate_redis::Clock;
pub use window::{CAPABILITIES_WINDOW, SpinWindow};
