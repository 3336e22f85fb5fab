//! The suite's Spin app. Each path is limited by one of the adapter's limiters, per client address. To write your own, copy
//! `adapters/spin/examples/app`.
//!
//! | path | counts on |
//! |-|-|
//! | `/kv` | get and put |
//! | `/atomics` | compare-and-swap |
//! | `/window` | increments |
//! | `/redis` | a Redis server |
//! | `/free` | nothing; the baseline of the benchmark |
//!
//! spin.toml holds the policies, under `environment`.
//!
//! If the variable `TIDEGATE_TEST_MODE` is `on` or a key, the app also answers the conformance suite's routes below each path
//! (`/kv/_tidegate/check`) and takes the time from them. Never deploy it with `on`. With the variable `TIDEGATE_ROUTED_RULES`, it is the
//! app of `routed` instead.
#![cfg(target_arch = "wasm32")]
#![expect(unsafe_code, reason = "the expansion of `http_component`")]

mod app;
mod reply;
mod routed;
mod suite;

use std::env;

use spin_sdk::http::{IncomingRequest, Response, ResponseOutparam};
use spin_sdk::http_component;
use tidegate_core::{Error, Limiter, Millis, Rejection};
use tidegate_spin::{Clock, RedisConnection, SpinAtomics, SpinKv, SpinRedis, SpinRedisLimiter, SpinWindow};

use crate::reply::{not_found, refuse, response};

/// In test mode a state on Redis lives at least this long, because virtual time stands still.
const TEST_TTL_MIN: Millis = Millis::from_secs(3_600);

/// Answers a request.
#[http_component]
async fn handle(request: IncomingRequest, out: ResponseOutparam) {
    // This sends one TCP segment. A handler that returns the response sends two, and on Spin the second one waits 40
    // ms.
    if let Err(error) = tidegate_spin::respond(out, route(request).await) {
        eprintln!("{error}");
    }
}

/// Answers a request by the limiter that its path names.
async fn route(request: IncomingRequest) -> Response {
    if let Some(rules) = routed::rules() {
        return routed::answer(&rules, request).await;
    }
    let path = request.path_with_query().unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default().trim_start_matches('/').to_string();
    let (limiter, rest) = path.split_once('/').unwrap_or((&path, ""));
    let store = env::var("STORE").unwrap_or_default();
    match limiter {
        "kv" => answer(SpinKv::open(&store).map(SpinKv::limiter), "POLICY", request, rest).await,
        "atomics" => answer(SpinAtomics::open(&store).map(SpinAtomics::limiter), "POLICY", request, rest).await,
        "window" => answer(SpinWindow::open(&store), "WINDOW_POLICY", request, rest).await,
        "redis" => answer(redis(), "POLICY", request, rest).await,
        "free" => response(200, [], "allowed\n".into()),
        _ => not_found(),
    }
}

fn redis() -> Result<SpinRedisLimiter, Error> {
    let redis = SpinRedis::new(RedisConnection::open(&env::var("REDIS_URL").unwrap_or_default())?);
    Ok(if suite::in_test_mode() { redis.clock(Clock::Caller).min_ttl(TEST_TTL_MIN) } else { redis }.limiter())
}

async fn answer<L: Limiter>(limiter: Result<L, Error>, policy: &str, request: IncomingRequest, rest: &str) -> Response {
    let limiter = match limiter {
        Ok(limiter) => limiter,
        Err(error) => {
            eprintln!("{error}");
            return if suite::asks(&request, rest) {
                suite::failed(&error)
            } else {
                refuse(&Rejection::unavailable(error.kind()))
            };
        }
    };
    if rest.is_empty() {
        return app::limited(&limiter, policy, &request).await;
    }
    if suite::asks(&request, rest) { suite::answer(&limiter, request, rest).await } else { not_found() }
}

fn switched_on(variable: &str) -> bool {
    env::var(variable).is_ok_and(|value| value == "on")
}
