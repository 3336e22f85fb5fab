// The example needs the Redis protocol.
#![cfg_attr(any(not(doctest), feature = "resp"), doc = include_str!("../README.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answered;
#[cfg(feature = "resp")]
mod batch;
mod call;
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
mod eviction;
#[cfg(feature = "resp")]
mod explain;
mod names;
mod over;
#[cfg(feature = "resp")]
mod refusal;
#[cfg(feature = "rest")]
mod rest;
mod script;
mod scripts;
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

#[cfg(feature = "resp")]
pub use config::Config;
#[cfg(feature = "resp")]
pub use explain::Explanation;
pub use over::{Answer, Connection, RedisOver};
#[cfg(all(feature = "rest", not(target_arch = "wasm32")))]
pub use rest::{Native, RestLimiter};
#[cfg(feature = "rest")]
pub use rest::{NoAnswer, Response, Rest, RestConfig, Transport};
pub use script::{LOCKING_SCRIPT, LOCKING_SCRIPT_SHA1, SCRIPT, SCRIPT_SHA1, batch_script};
pub use settings::Clock;
#[cfg(feature = "resp")]
pub use store::{Redis, RedisLimiter};
#[cfg(any(feature = "resp", feature = "rest"))]
pub use tidegate_core::lending::Lease;
pub use tidegate_core::prelude::*;

/// The commands and answers, for hosts that carry them by themselves. This may change with any version.
#[doc(hidden)]
pub mod wire {
    pub use crate::answered::refused;
    pub use crate::call::{Call, answer, question};
    #[cfg(feature = "rest")]
    pub use crate::rest::error::{nonsense, status};
    pub use crate::script::Script;
}
