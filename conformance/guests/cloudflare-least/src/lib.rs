//! The smallest Worker that the crate `worker` can build. It limits nothing.
#![cfg(target_arch = "wasm32")]

use worker::{Context, Env, Request, Response, event};

#[event(fetch)]
async fn fetch(_request: Request, _env: Env, _context: Context) -> worker::Result<Response> {
    Response::ok("allowed\n")
}
