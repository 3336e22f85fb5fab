//! A small rate-limited Worker, as one would deploy it: each path is limited by another store, by the client's address.
//!
//! | path | counts in |
//! |-|-|
//! | `/do` | Durable Objects, one for each key |
//! | `/do-leased` | the same, of which each isolate leases a part that it spends without asking |
//! | `/kv` | each isolate's memory, and what Workers KV tells of the others |
//! | `/ratelimit` | the Rate Limiting binding |
//! | `/debug/…` | nothing: it shows what the client has left there; only where the variable `DEBUG` is `on` |
//! | `/debug/kv/stats` | nothing: it shows what this isolate did with Workers KV, and what it met there; likewise |
//!
//! The variable `POLICY` is what it limits by, but for `/ratelimit`, which has its own in the binding. The binding
//! `DENIALS` may be an Analytics Engine dataset: then each denial is an event there.
//!
//! Only where the variable `TOLLGATE_TEST_MODE` is `on` it also answers the conformance suite's routes below each path
//! (`/do/_tollgate/check`), and takes its time from them. Never deploy it so.
#![cfg(target_arch = "wasm32")]

mod app;
mod limiters;
mod reply;
mod suite;
mod virtual_time;

use tollgate_core::{Error, Limiter};
use worker::{Context, Env, Request, Response, event};

use crate::app::App;
use crate::reply::unavailable;

tollgate_cloudflare_do::durable_object!(Tollgate);

/// Answers a request from the store that its path names.
#[event(fetch, respond_with_errors)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    let path = request.path();
    let path = path.trim_start_matches('/');
    let (debug, path) = path.strip_prefix("debug/").map_or((false, path), |path| (true, path));
    let (store, rest) = path.split_once('/').unwrap_or((path, ""));
    let asked = Asked { request, env: &env, debug, rest };
    match store {
        "do" => asked.of(limiters::durable_objects(&env).as_ref(), "POLICY").await,
        "do-leased" => asked.of(limiters::leases(&env).as_ref().copied(), "POLICY").await,
        "kv" if debug && rest == "stats" && switched_on(&env, "DEBUG") => Response::ok(limiters::kv_stats()),
        "kv" => asked.of(limiters::kv(&env, &context).as_ref(), "POLICY").await,
        "ratelimit" => asked.of(Ok(&limiters::RateLimits { env: &env }), "RATE_LIMIT_POLICY").await,
        _ => not_found(),
    }
}

/// A request, for whichever limiter its path names.
struct Asked<'a> {
    request: Request,
    env: &'a Env,
    debug: bool,
    rest: &'a str,
}

impl Asked<'_> {
    async fn of<L: Limiter>(self, limiter: Result<&L, &Error>, policy: &str) -> worker::Result<Response> {
        let is_suite = self.rest.starts_with("_tollgate/") && in_test_mode(self.env);
        let limiter = match limiter {
            Ok(limiter) => limiter,
            Err(error) if is_suite => return suite::failed(error),
            Err(error) => return unavailable(error),
        };
        if is_suite {
            return suite::answer(limiter, self.request, self.rest).await;
        }
        match (self.debug, self.rest) {
            (false, "") => App::new(limiter, self.env, policy)?.limited(&self.request).await,
            (true, "") if switched_on(self.env, "DEBUG") => {
                App::new(limiter, self.env, policy)?.left(&self.request).await
            }
            _ => not_found(),
        }
    }
}

fn not_found() -> worker::Result<Response> {
    Response::error("not found", 404)
}

fn in_test_mode(env: &Env) -> bool {
    switched_on(env, "TOLLGATE_TEST_MODE")
}

fn switched_on(env: &Env, name: &str) -> bool {
    env.var(name).is_ok_and(|value| value.to_string() == "on")
}
