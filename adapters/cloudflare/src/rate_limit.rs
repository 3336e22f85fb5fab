//! Rate limiting by Cloudflare's [Rate Limiting binding]. It needs no storage, adds no network round trip, and counts per
//! location.
//!
//! [`RateLimit`] is a [`Native`](tidegate_core::store::Native) store: the platform counts, decides, and answers yes or no. A
//! decision therefore has a status and a limit, and no `remaining`, `reset_after` or `retry_after`.
//!
//! `wrangler.jsonc` configures the limit and the period, and the platform does not report them. Pass the same two numbers to
//! the constructor. A check of any other policy is [`Unsupported`](tidegate_core::ErrorKind::Unsupported).
//!
//! ```
//! use tidegate_cloudflare::rate_limit::{Binding, RateLimit};
//! use tidegate_cloudflare::{Check, Error, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//!
//! async fn admits(binding: impl Binding, key: &Key, now: UnixMillis) -> Result<bool, Error> {
//!     // In a Worker: RateLimit::from_env(&env, "LIMITER", 100, Millis::from_secs(60))?
//!     let limiter = RateLimit::new(binding, 100, Millis::from_secs(60))?.limiter();
//!     let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
//!     let decision = limiter.check(Check::new(&policy, key, now)).await?;
//!     Ok(decision.is_allowed())
//! }
//! ```
//!
//! # Accuracy
//! Per location: `limit <= admitted <= limit x locations`. Cloudflare calls the counts "permissive, eventually consistent",
//! so a burst may exceed the limit even within a location.
//!
//! # Limits
//! The store supports one `fixed_window` quota of 10 s or 60 s, and requests that cost 1. It does not support peek, refund,
//! reset, `charge_denied` or idempotency tokens. It uses the platform's clock.
//!
//! # Errors
//! - [`Invalid`](tidegate_core::ErrorKind::Invalid), when the limiter is created: the binding does not exist, or the platform
//!   does not offer the period.
//! - [`Unsupported`](tidegate_core::ErrorKind::Unsupported): the policy is not the configured one.
//! - [`Unavailable`](tidegate_core::ErrorKind::Unavailable): the binding failed. This is the only error on which a caller may
//!   fail open.
//! - [`Contended`](tidegate_core::ErrorKind::Contended) and [`Refused`](tidegate_core::ErrorKind::Refused): the binding was
//!   called too often, or rejected its arguments. A client may be able to cause these.
//!
//! [Rate Limiting binding]: https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/

mod error;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod host;
mod store;

pub use error::failed;
pub use store::{Binding, CAPABILITIES, RateLimit, RateLimitLimiter};
