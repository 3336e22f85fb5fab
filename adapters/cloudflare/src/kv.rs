//! Approximate rate limiting on Workers KV, with a ceiling that does not depend on KV.
//!
//! Workers KV has no atomic operations, shows a write to other locations up to a minute later, and accepts one write per second
//! and key. A counter that is kept with get and put exceeds its limit by the whole burst. This crate therefore counts in the
//! memory of each isolate ([`Isolate`]). It decides by that count and by what KV reports of other isolates, and it writes the
//! count at most once per second, after the response.
//!
//! ```
//! use tidegate_cloudflare::kv::{Config, Isolate, KvLimiter};
//! use tidegate_cloudflare::{Check, Error, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! use tidegate_core::store::BestEffort;
//!
//! // In a Worker: a static `Isolate::random(Config::default())`, and kv = WorkersKv::from_env(&env, "COUNTS")?
//! async fn admits(isolate: &Isolate, kv: impl BestEffort, key: &Key, now: UnixMillis) -> Result<bool, Error> {
//!     let limiter = KvLimiter::new(isolate, kv);
//!     let policy = Policy::new("api", [Quota::sliding_window(100, Millis::from_secs(60))?])?;
//!     let decision = limiter.check(Check::new(&policy, key, now)).await?;
//!     limiter.flush(now).await; // In a Worker: context.wait_until(limiter.write_back(now)), after the response.
//!     Ok(decision.is_allowed())
//! }
//! let _isolate = Isolate::new(0x5eed, Config::default());
//! ```
//!
//! # Accuracy
//! - **Ceiling**: `admitted <= limit x locations`, where a location is an isolate that has served the key while its counts
//!   mattered. It holds in every window of a fixed window, and in every interval of a token bucket (for its capacity and
//!   refill). It holds for every key, whatever KV does and however many keys there are. [`DRIFT`] is this formula as code.
//! - **Floor**: no key is denied what the true count of all isolates admits, as long as their clocks agree. A client that one
//!   isolate serves gets the same decisions as from the reference implementation. For more keys than an isolate holds, see
//!   [Capacity](#capacity).
//! - **Convergence**: if KV works, every isolate learns every count, and the long-run rate of a token bucket approaches its
//!   refill rate. KV determines how soon: usually within a minute.
//!
//! # Capacity
//! An isolate holds up to [`Config::keys_max`] keys. Its table has sets of 32 slots, and some sets are full before the whole
//! table is. When a key's set is full of counts that still matter, the isolate forgets one key of the set. It chooses a key of
//! the network that has the most keys in the set, and of these the key that has used least. A client that rotates its IPv6
//! prefixes therefore displaces itself.
//!
//! The isolate remembers what the forgotten key has used for a group of keys: for the key's /48 (IPv6) or /24 (IPv4), or for its
//! /32 or /16 if the keys of that network are in different ones. There are 1,024 groups, selected by a hash. A key that is not an
//! address belongs to a group by its own hash. A key that the isolate does not hold starts with the greatest count of any
//! forgotten key of its group, until that count expires by the policy's own rules.
//!
//! - The ceiling holds for every key, also for keys that were forgotten.
//! - A key is denied early only after the keys of its group have used the limit between them, within the policy's own window. A
//!   client that floods an isolate denies itself. It can also deny clients of its own /48 (of its /32, if it rotates through
//!   many /48s) that the isolate does not hold, and one in 1,024 other networks.
//! - Time per request is constant: a request searches one set, and never all keys. A denied request of a key that is not held
//!   reads and writes nothing.
//!
//! [`Stats::keys_forgotten`] and [`Stats::denied_by_group`] count how often this happens.
//!
//! # Limits
//! An isolate that ends loses the counts that it has not written, and the isolate that replaces it counts as one more location.
//! A value has entries of at most 32 isolates. Refund, reset, `charge_denied`, idempotency tokens, `sliding_log` and
//! `leaky_bucket` are [`Unsupported`](tidegate_core::ErrorKind::Unsupported).
//!
//! # Errors
//! A failure of KV is not an error of a check. The isolate decides by its own counts, sets the decision's origin to
//! [`Fallback`](tidegate_core::Origin::Fallback), and counts the failure in [`Stats`]. It ignores and overwrites a value that
//! Tidegate did not write. [`Refused`](tidegate_core::ErrorKind::Refused) means that a full isolate has forgotten keys of more
//! than 64 policies in one group. No check fails with an error on which a caller may fail open.

mod account;
mod bucket;
mod coarse;
mod config;
mod draws;
mod error;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod host;
mod isolate;
mod pace;
mod record;
mod slot;
mod stats;
mod store;
mod table;
mod value;

pub use config::{Config, Operations};
pub use error::failed;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use host::{SharedKv, WorkersKv};
pub use isolate::Isolate;
pub use stats::Stats;
pub use store::{CAPABILITIES, DRIFT, KvLimiter};
