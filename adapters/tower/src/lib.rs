//! A [tower](https://docs.rs/tower) layer over any Tidegate limiter, for native hosts: axum, tonic, hyper, a Vercel
//! function in Rust, a container.
//!
//! ```
//! use std::sync::Arc;
//! use axum::{Router, routing::get};
//! use tidegate_core::{ClientIpSource, MemoryLimiter, Millis, Platform, Policy, Quota};
//! use tidegate_tower::{FailMode, RateLimitLayer, KeyExtractor};
//! # fn main() -> Result<(), tidegate_core::Error> {
//! let policy = Policy::new("api", [Quota::token_bucket(20, 10, Millis::from_secs(1))?])?;
//! let key_extractor = KeyExtractor::new(ClientIpSource::new(Platform::Vercel));
//! let layer = RateLimitLayer::new(Arc::new(MemoryLimiter::new()), policy, key_extractor, FailMode::Open)?;
//! let app: Router = Router::new().route("/", get(|| async { "hello" })).layer(layer);
//! # Ok(())
//! # }
//! ```
//!
//! Every response carries the fields that the core writes ([`ResponseFields`](tidegate_core::ResponseFields)), and a
//! denied request is answered with its 429 ([`Rejection`](tidegate_core::Rejection)), without the service being called.
//! The service, and whatever is layered outside of this, finds a [`Verdict`] in the extensions of the request and of
//! the response.
//!
//! # When the limiter fails
//! That is no denial. [`FailMode`] says what then happens, and must be chosen: [`Open`](FailMode::Open) lets the request
//! go on and says so, in a field (`x-tidegate-failed-open: timeout`) and in the verdict; [`Closed`](FailMode::Closed)
//! answers a 503.
//!
//! # Delays
//! A leaky bucket admits a request and says how long to hold it. The layer holds it that long before the service is
//! called, in memory and without a bound but the bucket's own: its capacity is how many wait at most.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod key_extractor;
mod layer;
mod service;

pub use key_extractor::{ApiKey, KeyExtractor, Subject};
pub use layer::{FailMode, RateLimitLayer};
pub use service::{RateLimit, Verdict};
