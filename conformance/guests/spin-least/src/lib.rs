//! The least Spin app that its SDK can build. It limits nothing.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "what `http_component` expands to")]

use spin_sdk::http::{IncomingRequest, Response};
use spin_sdk::http_component;

/// Answers every request.
#[http_component]
async fn handle(_: IncomingRequest) -> Response {
    Response::new(200, "allowed\n")
}
