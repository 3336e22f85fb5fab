//! Rate limiting in a Cloudflare Worker: a gate in front of it, and a limiter for each of Cloudflare's stores.
//!
//! | module and feature | counts in | admits at most |
//! |-|-|-|
//! | `durable_objects`, feature `durable-objects` | Durable Objects, also with parts of a limit leased to isolates | the limit |
//! | `kv`, feature `kv` | isolates, which share their counts through Workers KV | limit x locations |
//! | `rate_limit`, feature `rate-limit` | the platform's Rate Limiting binding | limit x locations |
//!
//! ```
//! # #[cfg(target_arch = "wasm32")] mod worker_in_rust {
//! use tidegate_cloudflare::durable_objects::{Config, DurableObjects};
//! use tidegate_cloudflare::{
//!     ClientIpSource, Error, Gate, Millis, OnFailure, PerIsolate, Platform, Policy, Quota, Rules, check,
//!     with_fields,
//! };
//! use worker::{Context, Env, Request, Response, event};
//!
//! tidegate_cloudflare::durable_object!(Tidegate);
//!
//! #[event(fetch)]
//! async fn fetch(request: Request, env: Env, _context: Context) -> worker::Result<Response> {
//!     static GATE: PerIsolate<Gate<'static>> = PerIsolate::new();
//!     let gate = GATE.get_or_make(|| gate(&env)).map_err(|error| error.to_string())?;
//!     match check(gate, &request).await? {
//!         Ok(pass) => with_fields(Response::ok("allowed\n")?, pass.fields()),
//!         Err(refused) => Ok(refused),
//!     }
//! }
//!
//! fn gate(env: &Env) -> Result<Gate<'static>, Error> {
//!     let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
//!     let store = DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter();
//!     Gate::new(Rules::all(policy, OnFailure::Closed), store, ClientIpSource::new(Platform::Cloudflare))
//! }
//! # }
//! ```
//!
//! [`prelude`](tidegate_core::prelude) of the core is part of this crate: policies, rules, limiters around limiters, errors.
//!
//! The client's address is `cf-connecting-ip`, which Cloudflare sets. The bot score is `cf.botManagement.score`, if the plan has
//! it.
//!
//! # Features
//! - `worker` (default): what needs the crate `worker`: the gate, the object's class and the bindings. All of it exists on
//!   WebAssembly only. Without this feature, the stores work over a host of another kind.
//! - `toml`: rules files in TOML.

#[cfg(feature = "durable-objects")]
pub mod durable_objects;
#[cfg(feature = "kv")]
pub mod kv;
#[cfg(feature = "rate-limit")]
pub mod rate_limit;

#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod analytics;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod incoming;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
mod per_isolate;

#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use analytics::AnalyticsSink;
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use incoming::{Incoming, check, outcome, with_fields};
#[cfg(all(target_arch = "wasm32", feature = "worker"))]
pub use per_isolate::PerIsolate;
pub use tidegate_core::prelude::*;
