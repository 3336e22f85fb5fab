//! A Worker with one exact limit: each client may send ten requests at once, and five a second.
#![cfg(target_arch = "wasm32")]

use tidegate_cloudflare::durable_objects::{Config, DurableObjects};
use tidegate_cloudflare::{
    ClientIpSource, Error, Gate, Millis, OnFailure, PerIsolate, Platform, Policy, Quota, Rules, check, unavailable,
    with_fields,
};
use worker::{Context, Env, Request, Response, event};

tidegate_cloudflare::durable_object!(Tidegate);

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> worker::Result<Response> {
    static GATE: PerIsolate<Gate<'static>> = PerIsolate::new();
    let gate = match GATE.get_or_make(|| gate(&env)) {
        Ok(gate) => gate,
        Err(error) => return unavailable(&error),
    };
    match check(gate, &request).await? {
        Ok(pass) => with_fields(Response::ok("allowed\n")?, &pass.fields()),
        Err(refused) => Ok(refused),
    }
}

fn gate(env: &Env) -> Result<Gate<'static>, Error> {
    let policy = Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])?;
    let store = DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter();
    Gate::new(Rules::all(policy, OnFailure::Closed), store, ClientIpSource::new(Platform::Cloudflare))
}
