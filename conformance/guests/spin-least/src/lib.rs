//! The smallest Spin app that its SDK can build, as the SDK's documentation writes it. It limits nothing.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "the expansion of `http_component`")]

use spin_sdk::http::{IncomingRequest, Response};
use spin_sdk::http_component;

/// Answers every request.
#[http_component]
async fn handle(_: IncomingRequest) -> Response {
    Response::new(200, "allowed\n")
}
