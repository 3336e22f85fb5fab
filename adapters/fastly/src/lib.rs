#![doc = include_str!("../README.md")]

mod erl;
mod error;
#[cfg(target_os = "wasi")]
mod host;
#[cfg(target_os = "wasi")]
mod incoming;
mod kv;

pub use erl::{CAPABILITIES as ERL_CAPABILITIES, Erl, ErlLimiter, Rates, Window};
#[cfg(target_os = "wasi")]
pub use incoming::{Incoming, check, outcome, with_fields};
pub use kv::{CAPABILITIES as KV_CAPABILITIES, DRIFT, Inserted, KeyValue, Kv, KvLimiter, Only, Stats};
pub use tidegate_core::prelude::*;
