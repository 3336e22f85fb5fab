//! A small rate-limited Spin app, as one would deploy it: each path is limited by another of the adapter's limiters, by the
//! client's address.
//!
//! | path | counts by |
//! |-|-|
//! | `/kv` | get and put |
//! | `/atomics` | compare-and-swap |
//! | `/window` | increments alone |
//! | `/free` | nothing: everyone gets it, which is what the others are measured against |
//!
//! What it limits by stands in spin.toml, under `environment`.
//!
//! Only where the variable `TIDEGATE_TEST_MODE` is `on` it also answers the conformance suite's routes below each path
//! (`/kv/_tidegate/check`), and takes its time from them. Never deploy it so.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "what `http_component` expands to")]

mod app;
mod reply;
mod suite;

use std::env;

use spin_sdk::http::{IncomingRequest, Response};
use spin_sdk::http_component;
use tidegate_core::{Error, Limiter, Rejection};
use tidegate_spin::{SpinAtomics, SpinKv, SpinWindow};

use crate::reply::{not_found, refuse, response};

/// Answers a request from the limiter that its path names.
#[http_component]
async fn handle(request: IncomingRequest) -> Response {
    let path = request.path_with_query().unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().trim_start_matches('/').to_string();
    let (limiter, rest) = path.split_once('/').unwrap_or((&path, ""));
    let store = env::var("STORE").unwrap_or_default();
    match limiter {
        "kv" => answer(SpinKv::open(&store).map(SpinKv::limiter), "POLICY", request, rest).await,
        "atomics" => answer(SpinAtomics::open(&store).map(SpinAtomics::limiter), "POLICY", request, rest).await,
        "window" => answer(SpinWindow::open(&store), "WINDOW_POLICY", request, rest).await,
        "free" => response(200, [], "allowed\n".into()),
        _ => not_found(),
    }
}

async fn answer<L: Limiter>(limiter: Result<L, Error>, policy: &str, request: IncomingRequest, rest: &str) -> Response {
    let limiter = match limiter {
        Ok(limiter) => limiter,
        Err(error) => {
            eprintln!("{error}");
            return refuse(&Rejection::unavailable(error.kind()));
        }
    };
    if rest.is_empty() {
        return app::limited(&limiter, policy, &request).await;
    }
    if switched_on("TIDEGATE_TEST_MODE") { suite::answer(&limiter, request, rest).await } else { not_found() }
}

fn switched_on(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value == "on")
}
