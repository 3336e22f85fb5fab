//! The same script over Upstash's REST protocol (<https://upstash.com/docs/redis/features/restapi>): one HTTP request a
//! decision, by `reqwest` natively and by the host's `fetch` on WebAssembly.

mod config;
mod error;
#[cfg(target_arch = "wasm32")]
mod fetch;
mod json;
#[cfg(not(target_arch = "wasm32"))]
mod native;
mod reply;
mod store;

#[cfg(target_arch = "wasm32")]
use fetch as http;
#[cfg(not(target_arch = "wasm32"))]
use native as http;

pub use config::RestConfig;
pub use store::{Rest, RestLimiter};

/// What either way of sending brings back.
struct Response {
    status: u16,
    /// What makes a later request see what this one wrote, wherever it is answered.
    sync_token: Option<String>,
    body: Vec<u8>,
}

/// The longest answer that is read: eight sliding logs of a thousand entries are a fifth of it.
const ANSWER_LEN_MAX: usize = 1 << 20;

/// Where Upstash says how far a request's writes have come.
const SYNC_TOKEN: &str = "upstash-sync-token";

/// Sent with every request. An answer in base64 holds any bytes; JSON holds text only.
const HEADERS: [(&str, &str); 2] = [("content-type", "application/json"), ("upstash-encoding", "base64")];
