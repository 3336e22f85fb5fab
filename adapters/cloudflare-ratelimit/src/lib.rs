//! Rate limiting by Cloudflare's own [Rate Limiting binding]: no storage of yours, no added latency, counted per location.
//!
//! [`RateLimit`] is a [`Native`](tidegate_core::store::Native) store: the platform counts and decides, and answers yes or
//! no. So a decision has a limit and a status and nothing else: no `remaining`, no `reset_after`, no `retry_after`.
//!
//! The platform's policy stands in `wrangler.jsonc`; the constructor takes the same two numbers, and a check of any other
//! policy is [`Unsupported`](tidegate_core::ErrorKind::Unsupported) rather than decided by the wrong one.
//!
//! ```
//! use tidegate_cloudflare_ratelimit::RateLimit;
//! use tidegate_core::{Check, Key, Limiter, Millis, Policy, Quota, UnixMillis};
//! # use tidegate_cloudflare_ratelimit::Binding;
//! # async fn run(binding: impl Binding, now: UnixMillis) -> Result<(), tidegate_core::Error> {
//! // In a Worker: RateLimit::from_env(&env, "LIMITER", 100, Millis::from_secs(60))?
//! let limiter = RateLimit::new(binding, 100, Millis::from_secs(60))?.limiter();
//! let policy = Policy::new("api", [Quota::fixed_window(100, Millis::from_secs(60))?])?;
//! let decision = limiter.check(Check::new(&policy, &Key::new("ip:192.0.2.1"), now)).await?;
//! assert_eq!(decision.retry_after(), None);
//! # Ok(())
//! # }
//! ```
//!
//! # What it does not do
//! Other periods than 10 s and 60 s, other algorithms than `fixed_window`, several quotas, costs, peek, refund, reset,
//! idempotency. It does not read the caller's clock. Counts are per location, and the platform calls them "permissive,
//! eventually consistent": at most limit x locations, by its word.
//!
//! # Errors
//! A binding that is not configured is [`Invalid`](tidegate_core::ErrorKind::Invalid), when the limiter is made; one that
//! does not answer is [`Unavailable`](tidegate_core::ErrorKind::Unavailable), which is never a denial.
//!
//! [Rate Limiting binding]: https://developers.cloudflare.com/workers/runtime-apis/bindings/rate-limit/

mod error;
mod store;
#[cfg(target_arch = "wasm32")]
mod worker_binding;

pub use store::{Binding, CAPABILITIES, RateLimit, RateLimitLimiter};
