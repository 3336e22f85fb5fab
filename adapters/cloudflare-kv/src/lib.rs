//! Approximate rate limiting on Workers KV, with a bound that does not depend on what KV does.
//!
//! Workers KV has no atomic step, shows a write elsewhere up to a minute later, and takes one write a second a key. A
//! counter kept by get and put passes its limit by the whole burst there. So here an isolate counts in its own memory what it
//! admitted itself ([`Isolate`]), decides by that and by what KV tells of the other isolates, and writes its count at most
//! once a second, after the response.
//!
//! ```
//! use tidegate_cloudflare_kv::{Config, Isolate, KvLimiter};
//! use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! # use tidegate_core::store::BestEffort;
//! # async fn run(kv: impl BestEffort, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In a Worker: a static, and kv = WorkersKv::from_env(&env, "COUNTS")?
//! let isolate = Isolate::new(0x5eed, Config::default());
//! let limiter = KvLimiter::new(&isolate, kv);
//! let policy = Policy::new("api", [Quota::sliding_window(100, Millis::from_secs(60))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! limiter.flush(now).await; // In a Worker: ctx.wait_until(limiter.write_back(now)).
//! # Ok(())
//! # }
//! ```
//!
//! # What holds
//! - **Ceiling**: `admitted <= limit x locations`, where a location is an isolate that served the key while its counts
//!   mattered: in one window of a fixed window, in any interval of a token bucket (its capacity and refill). Whatever KV does:
//!   throttles, loses, answers late, nothing or nonsense.
//! - **Floor**: nobody is denied what the true count of all isolates admits, as long as their clocks agree. A lone
//!   client on one isolate meets exactly the reference.
//! - **Convergence**: where KV shows writes, every isolate comes to know every count, and the long-run rate of a token bucket
//!   comes to its refill. How soon is KV's: a minute as a rule.
//!
//! # What does not
//! An isolate that ends forgets its counts but for what it had written, and its successor counts as one more. A value tells
//! of 32 isolates at most. Refund, reset, `charge_denied`, idempotency tokens, `sliding_log` and `leaky_bucket` are
//! [`Unsupported`](tidegate_core::ErrorKind::Unsupported).
//!
//! # Errors
//! No failure of KV is an error of a check: the isolate goes by its own counts, says so by the decision's
//! [`origin`](tidegate_core::Origin::Fallback), and counts the failure in [`Stats`]. A stored value that Tidegate did not write
//! counts as nothing found, is counted, and is written over. [`Refused`](tidegate_core::ErrorKind::Refused) is an isolate
//! that holds as many keys as [`Config::keys_max`] allows.

mod account;
mod bucket;
mod config;
mod draws;
mod error;
mod isolate;
mod pace;
mod record;
mod stats;
mod store;
mod value;
#[cfg(target_arch = "wasm32")]
mod worker_kv;

pub use config::{Config, Operations};
pub use isolate::Isolate;
pub use stats::Stats;
pub use store::{CAPABILITIES, DRIFT, KvLimiter};
#[cfg(target_arch = "wasm32")]
pub use worker_kv::WorkersKv;
