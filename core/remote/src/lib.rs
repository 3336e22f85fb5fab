#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod connecting;
#[cfg(all(feature = "tokio", not(target_arch = "wasm32")))]
mod deadline;
mod overload;
#[cfg(all(feature = "rustls", not(target_arch = "wasm32")))]
mod trust;

pub use connecting::not_connected;
#[cfg(all(feature = "tokio", not(target_arch = "wasm32")))]
pub use deadline::{Deadline, Missed};
pub use overload::{Progress, Start, overloaded};
#[cfg(all(feature = "rustls", not(target_arch = "wasm32")))]
pub use trust::{client_config, system_certificates};
