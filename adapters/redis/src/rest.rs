//! Runs the scripts over Upstash's REST protocol (<https://upstash.com/docs/redis/features/restapi>), with one HTTP
//! request per decision. Natively it uses `reqwest`, on WebAssembly the host's HTTP client.

mod config;
pub(crate) mod error;
mod json;
#[cfg(not(target_arch = "wasm32"))]
mod native;
mod reply;
mod store;
mod transport;

pub use config::RestConfig;
#[cfg(not(target_arch = "wasm32"))]
pub use native::Native;
pub use store::Rest;
#[cfg(not(target_arch = "wasm32"))]
pub use store::RestLimiter;
pub use transport::{NoAnswer, Response, Transport};

/// The longest answer that is read. Eight sliding logs of a thousand entries take a fifth of it.
const ANSWER_LEN_MAX: usize = 1 << 20;
