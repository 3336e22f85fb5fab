//! Rate limiting in a [Spin] app, by its key-value store.
//!
//! A Spin app is a fresh instance for every request: it remembers nothing, so all that counts is in the store. There are three
//! limiters, for what three kinds of store can do:
//!
//! | limiter | needs | exact |
//! |-|-|-|
//! | [`SpinAtomics`] | `wasi:keyvalue` atomics with a sound compare-and-swap, as the SQLite store has | yes |
//! | [`SpinWindow`] | `increment` alone | yes, for one fixed window and requests that cost 1 |
//! | [`SpinKv`] | get and put, as on Akamai Functions | no |
//!
//! ```
//! use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! use tidegate_spin::SpinAtomics;
//! # async fn run(bucket: impl tidegate_spin::Atomics, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In a Spin app: SpinAtomics::open("default")?.limiter()
//! let limiter = SpinAtomics::new(bucket).limiter();
//! let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//! - The store has no expiry. Each client keeps its rows, whose number no time adds to (`SpinKv` one, `SpinAtomics` two,
//!   `SpinWindow` at most three); a client that never comes back keeps them, too.
//! - [`SpinAtomics`] is as exact as the store's compare-and-swap. The SQLite store's is sound. On Spin's Redis store take
//!   [`SpinWindow`] with [`Counters::Decimal`], as that store counts; neither was tried there.
//! - Idempotency tokens.
//!
//! # Errors
//! A store that spin.toml does not list is [`Invalid`](tidegate_core::ErrorKind::Invalid), when it is opened. Running out of
//! attempts is [`Contended`](tidegate_core::ErrorKind::Contended), a store that fails
//! [`Unavailable`](tidegate_core::ErrorKind::Unavailable), and a row that Tidegate did not write
//! [`Corrupt`](tidegate_core::ErrorKind::Corrupt). None of them is a denial.
//!
//! [Spin]: https://spinframework.dev

mod ballot;
mod bucket;
mod error;
#[cfg(target_arch = "wasm32")]
mod host;
mod store;
mod window;

pub use bucket::{Atomics, Bucket};
#[cfg(target_arch = "wasm32")]
pub use host::{SpinStore, WasiBucket};
pub use store::{CAPABILITIES_ATOMICS, CAPABILITIES_KV, SpinAtomics, SpinAtomicsLimiter, SpinKv, SpinKvLimiter};
pub use window::{CAPABILITIES_WINDOW, Counters, SpinWindow};
