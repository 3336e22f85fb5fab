#![doc = include_str!("../README.md")]
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
mod usage;

pub use body::ResponseBody;
pub use charge::Charge;
pub use layer::RateLimitLayer;
pub use queue::Queue;
pub use sender::{ApiKey, BotScore, Ja4, Limits, Subject, Tier};
pub use service::{RateLimit, ResponseFuture, Verdict};
pub use tidegate_core::prelude::*;
pub use usage::UsageService;

// What to write in place of other crates, beside what they take.
#[cfg(doctest)]
#[doc = include_str!("../docs/moving.md")]
struct Moving;
