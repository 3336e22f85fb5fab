//! A [tower](https://docs.rs/tower) layer that applies any Tidegate limiter to a service: axum, tonic, hyper, a Vercel
//! function in Rust.
//!
//! ```
//! use axum::{Router, routing::get};
//! use tidegate_tower::{ClientIpSource, Gate, MemoryLimiter, Platform, RateLimitLayer, Rules};
//! # fn main() -> Result<(), tidegate_core::Error> {
//! let rules = Rules::parse("rules.json", r#"{
//!     "limits": { "api": { "quotas": [{ "algorithm": "token_bucket", "capacity": 20, "refill": 10, "per_ms": 1000 }] } },
//!     "rules": [{ "path": "/api/*", "limits": ["api"] }]
//! }"#)?;
//! let gate = Gate::new(rules, MemoryLimiter::new(), ClientIpSource::new(Platform::Vercel))?;
//! let app: Router = Router::new().route("/api/hello", get(|| async { "hello" })).layer(RateLimitLayer::new(gate)?);
//! # Ok(())
//! # }
//! ```
//!
//! A [`Gate`] finds the limits of each request in its rules. Every limited response carries the core's
//! [`ResponseFields`](tidegate_core::ResponseFields). The layer answers a denied request with a 429
//! ([`Rejection`]) and does not call the inner service. The inner service finds a [`Verdict`] in the
//! request's extensions; outer layers find it in the response's.
//!
//! # Nested routers
//! axum's `Router::nest("/v1", …)` removes `/v1` from the paths that its layers see. With the feature `axum`, which is on by default,
//! rules match the path that arrived: write `/v1/login`.
//!
//! # Failures
//! A failed check is not a denial. The rule's [`OnFailure`] decides what happens if the store is
//! unreachable or does not answer in time: `Open` admits the request and adds the field `x-tidegate-failed-open: timeout`,
//! `Closed` rejects it with a 503. After any other error, such as contention for one key, the layer rejects the request with a
//! 503 in both cases, because a client can cause such an error.
//!
//! The layer emits a [`tracing`] event at level `WARN` with the target `tidegate` for failed checks, at most one a second for each
//! kind of error. Its fields are `policy`, `kind` ([`ErrorKind::name`](tidegate_core::ErrorKind::name)), `outcome` (`admitted` or
//! `rejected`; for a failed [`Charge::settle`] it is `unsettled`, for a slot that was not given back `unreleased`) and `suppressed`,
//! the number of failures since the last event. It contains no key, address or error message; those are in the [`Verdict`]. If the
//! gate's own events go to a [log](tidegate_core::gate::TracingSink), failed checks are only logged there. A
//! [`Fallback`] logs when its store goes down, and when it is back.
//!
//! # gRPC
//! `tonic::transport::Server::builder().layer(layer)` limits calls, and so does a layer of an axum router that has gRPC routes. A
//! call that is rejected gets a status in place of a body: `RESOURCE_EXHAUSTED` with a `google.rpc.RetryInfo` for a denial,
//! `UNAVAILABLE` after an error, `PERMISSION_DENIED` and `UNAUTHENTICATED` for a 403 and a 401, and `INTERNAL` if the layer is set up
//! wrongly. The path of a call is `/package.Service/Method`. tonic has the address of the connection as `TcpConnectInfo`:
//!
//! ```ignore
//! let layer = RateLimitLayer::with_peer(gate, |extensions| {
//!     extensions.get::<tonic::transport::server::TcpConnectInfo>()?.remote_addr().map(|address| address.ip())
//! });
//! ```
//!
//! # Unknown costs
//! The cost of some requests is known only afterwards, such as the tokens of an LLM's answer.
//! [`RateLimitLayer::estimate`] charges each request an estimate, and the service settles its [`Charge`] to the actual
//! cost. [`RateLimitLayer::refund_on`] cancels the charge of a request that failed.
//!
//! # Concurrency limits
//! If a limit has a [concurrency limit](tidegate_core::algorithm::Concurrency), a request holds its slot until the body of its
//! response has ended or is dropped. That includes a service that panics and a client that disconnects. A task of the tokio
//! runtime gives the slot back. It is not awaited, so the next request may come before it.
//!
//! # Queues and clients
//! [`Queue::until_admitted`] waits until a key is admitted, for a worker or a client that has to keep to a limit.
//!
//! # Delays
//! A leaky bucket admits a request and states how long to delay it. The layer waits that long before it calls the inner
//! service. At most as many requests wait per key as the bucket's capacity.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod charge;
mod grpc;
mod layer;
mod log;
mod queue;
mod sender;
mod service;
mod token;

pub use body::ResponseBody;
pub use charge::Charge;
pub use layer::RateLimitLayer;
pub use queue::Queue;
pub use sender::{ApiKey, BotScore, Subject, Tier};
pub use service::{RateLimit, Verdict};
pub use tidegate_core::prelude::*;

/// Compiles and runs the examples in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The examples of the root README, which need this crate and tidegate-redis.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct RootReadme;
