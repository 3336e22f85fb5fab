//! A Worker behind a gate: `rules.json` says which limits apply to which requests, and which store counts.
//!
//! | rule | store | because |
//! |-|-|-|
//! | `POST /login` | one Durable Object for each address | no attempt more, wherever it comes from |
//! | `/api/*`, by plan | the same objects, from which each isolate leases up to ten requests for two seconds | most requests wait for no object |
//! | everything else | the Rate Limiting binding, and Workers KV while that fails | it costs nothing, and keeps floods out of each location |
#![cfg(target_arch = "wasm32")]

use std::num::NonZero;

use tidegate_cloudflare::durable_objects::{Config, DurableObjects};
use tidegate_cloudflare::kv::{self, SharedKv};
use tidegate_cloudflare::rate_limit::RateLimit;
use tidegate_cloudflare::{
    AnalyticsSink, ClientIpSource, ErasedLimiter, Error, Events, Fallback, Gate, Millis, PerIsolate, Platform, after,
    check, unavailable, with_fields,
};
use tidegate_rules::rules;
use worker::{Context, Env, Request, Response, event};

tidegate_cloudflare::durable_object!(Tidegate);

#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    static GATE: PerIsolate<Gate<'static>> = PerIsolate::new();
    let gate = match GATE.get_or_make(|| gate(&env)) {
        Ok(gate) => gate,
        Err(error) => return unavailable(&error),
    };
    let outcome = check(gate, &request).await?;
    after(gate, &context);
    match outcome {
        Ok(pass) => with_fields(Response::ok("hello\n")?, &pass.fields()),
        Err(refused) => Ok(refused),
    }
}

fn gate(env: &Env) -> Result<Gate<'static>, Error> {
    let objects = DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter();
    let location = RateLimit::from_env(env, "LIMITER", 100, Millis::from_secs(60))?.limiter();
    let counts = SharedKv::from_env(env, "COUNTS", kv::Config::default())?;
    let stores: [(&str, Box<dyn ErasedLimiter>); 2] =
        [("objects", Box::new(objects)), ("location", Box::new(Fallback::new(location, 100)?.backup(counts)?))];
    let rules = rules!("rules.json")?;
    let gate = Gate::with_stores(rules, stores, ClientIpSource::new(Platform::Cloudflare))?;
    gate.in_background();
    // Without a dataset, there are no events.
    let (Ok(dataset), Ok(secret)) = (env.analytics_engine("EVENTS"), env.secret("KEY_SECRET")) else { return Ok(gate) };
    let mut key = [0; 16];
    secret.to_string().bytes().zip(&mut key).for_each(|(byte, place)| *place = byte);
    let events = Events::new(AnalyticsSink::new(dataset)).key_secret(key);
    Ok(gate.events(events.sample_allowed(NonZero::<u32>::MIN.saturating_add(99))))
}
