#![doc = include_str!("../README.md")]

pub mod proto;
mod request;
mod rules;
mod server;
mod service;
mod status;

pub use service::RateLimitService;
pub use tidegate_core::gate::{Gate, Rules};
pub use tidegate_core::prelude::*;
