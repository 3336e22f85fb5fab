#![doc = include_str!("../README.md")]

pub mod erl;
mod error;
#[cfg(target_os = "wasi")]
mod host;
#[cfg(target_os = "wasi")]
mod incoming;
pub mod kv;

pub use erl::{Erl, ErlLimiter};
#[cfg(target_os = "wasi")]
pub use incoming::{Incoming, check, outcome, with_fields};
pub use kv::{Kv, KvLimiter};
pub use tidegate_core::prelude::*;
