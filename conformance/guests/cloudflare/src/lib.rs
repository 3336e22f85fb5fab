//! The suite's Worker. Each path is limited by one of the stores, per client address, and a benchmark measures it. To write your
//! own, copy `adapters/cloudflare/examples/worker`.
//!
//! | path | counts in |
//! |-|-|
//! | `/do` | Durable Objects, one for each key |
//! | `/do-leased` | the same; each isolate leases a part and spends it without a call |
//! | `/kv` | each isolate's memory, and the other isolates' counts in Workers KV |
//! | `/ratelimit` | the Rate Limiting binding |
//! | `/debug/…` | nothing; it shows what the client has left, if the variable `DEBUG` is `on` |
//! | `/debug/kv/stats` | nothing; it shows this isolate's operations and errors on Workers KV, if `DEBUG` is `on` |
//!
//! The variables `CAPACITY` and `REFILL_PER_S` set the limit, except for `/ratelimit`, whose binding has its own two
//! numbers. `SLICE` is the largest lease of an isolate, and `LEASE_MS` the longest life of one, in milliseconds. If the
//! binding `DENIALS` is an Analytics Engine dataset, each denial is recorded there as an event.
//!
//! If the Worker is built with the feature `suite`, and the variable `TIDEGATE_TEST_MODE` is `on` or a key, it also answers the
//! conformance suite's routes below each path (`/do/_tidegate/check`) and takes the time from them. Never deploy it with `on`. With
//! the variable `TIDEGATE_ROUTED_RULES`, it is the app of `routed` instead.
#![cfg(target_arch = "wasm32")]

mod app;
mod limiters;
mod policies;
mod reply;
#[cfg(feature = "suite")]
mod routed;
#[cfg(feature = "suite")]
mod suite;
mod task;
#[cfg(feature = "suite")]
mod virtual_time;

use tidegate_core::{Error, Rejection};
use worker::wasm_bindgen::JsValue;
use worker::wasm_bindgen::prelude::wasm_bindgen;
use worker::web_sys::Request;
use worker::{Context, Env, wasm_bindgen, worker_sys};

use crate::app::App;
use crate::limiters::Store;
use crate::reply::{refuse, response};
#[cfg(feature = "suite")]
use crate::suite::in_test_mode;

tidegate_cloudflare::durable_object!(Tidegate);

/// The standard library's allocator is 3 KiB larger.
#[global_allocator]
static ALLOCATOR: rlsf::SmallGlobalTlsf = rlsf::SmallGlobalTlsf::new();

/// Answers a request. `#[worker::event(fetch)]` does the same, but is slower: see [`task`].
#[wasm_bindgen]
pub fn fetch(request: Request, env: Env, context: worker_sys::Context) -> JsValue {
    task::run(answer(request, env, Context::new(context)))
}

/// Answers a request with the store that its path names.
async fn answer(request: Request, env: Env, context: Context) -> JsValue {
    #[cfg(feature = "suite")]
    if let Some(rules) = routed::rules(&env) {
        return routed::answer(&rules, request, env).await;
    }
    let url = request.url();
    let path = path(&url);
    let (debug, path) = path.strip_prefix("debug/").map_or((false, path), |path| (true, path));
    let (name, rest) = path.split_once('/').unwrap_or((path, ""));
    let Some(store) = Store::named(name, &env, &context) else { return not_found() };
    #[cfg(feature = "suite")]
    if suite::asks(&request, rest, &env) {
        return suite::answer(store, &request, rest).await;
    }
    let (store, policy) = match store.and_then(|store| store.policy(&env).map(|policy| (store, policy))) {
        Ok(found) => found,
        Err(error) => return failed(&error),
    };
    let app = App { store: &store, policy, env: &env };
    match (debug, rest) {
        (false, "") => app.limited(&request).await,
        (true, "") if switched_on(&env, "DEBUG") => app.left(&request).await,
        (true, "stats") if switched_on(&env, "DEBUG") => {
            store.stats().map_or_else(not_found, |stats| response(200, [], &stats))
        }
        _ => not_found(),
    }
}

/// The path of an absolute URL, without the leading slash.
fn path(url: &str) -> &str {
    let slashes = url.bytes().enumerate().filter(|(_, byte)| *byte == b'/');
    let start = slashes.map(|(at, _)| at + 1).nth(2).unwrap_or(url.len());
    let path = &url[start..];
    &path[..path.bytes().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(path.len())]
}

/// Logs an error. The client does not get its message.
fn failed(error: &Error) -> JsValue {
    worker::console_error!("{error}");
    refuse(&Rejection::unavailable(error.kind()))
}

fn not_found() -> JsValue {
    response(404, [], "not found\n")
}

#[cfg(not(feature = "suite"))]
const fn in_test_mode(_: &Env) -> bool {
    false
}

fn switched_on(env: &Env, name: &str) -> bool {
    policies::variable(env, name) == "on"
}
