//! The suite's Compute app. Each path is limited by one of the adapter's limiters, per client address. To write your own,
//! copy `adapters/fastly/examples/app`.
//!
//! | path | counts in |
//! |-|-|
//! | `/kv` | KV Store, by compare-and-swap |
//! | `/erl` | Edge Rate Limiting |
//! | `/debug/kv` | nothing; it shows what the client has left, if `debug` is `on` |
//! | `/health` | nothing |
//!
//! The config store `tidegate` holds the policy of `/kv`.
//!
//! If the app is built with the feature `suite`, and a config store `tidegate_test` has `mode = "on"` or a key, it also
//! answers the conformance suite's routes below each path (`/kv/_tidegate/check`) and takes the time from them. Never deploy it
//! with `on`. With the setting `TIDEGATE_ROUTED_RULES` in a config store `tidegate_routed`, it is the app of `routed` instead.

#[cfg(target_os = "wasi")]
mod app;
#[cfg(target_os = "wasi")]
mod limiters;
#[cfg(all(target_os = "wasi", feature = "suite"))]
mod losing;
#[cfg(target_os = "wasi")]
mod response;
#[cfg(all(target_os = "wasi", feature = "suite"))]
mod routed;
#[cfg(target_os = "wasi")]
mod settings;
#[cfg(all(target_os = "wasi", feature = "suite"))]
mod suite;

#[cfg(target_os = "wasi")]
use fastly::{Error, Request, Response};

#[cfg(target_os = "wasi")]
#[fastly::main]
fn main(request: Request) -> Result<Response, Error> {
    #[cfg(feature = "suite")]
    if let Some(rules) = routed::rules() {
        return Ok(routed::answer(&rules, &request));
    }
    Ok(app::answer(request))
}

#[cfg(not(target_os = "wasi"))]
fn main() {
    eprintln!("this program runs on Fastly Compute: build it with --target wasm32-wasip1");
    std::process::exit(2);
}
