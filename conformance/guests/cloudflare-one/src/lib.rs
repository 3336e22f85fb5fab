//! A Worker with one exact limit: each client may send ten requests at once, and five a second.
#![cfg(target_arch = "wasm32")]

use tidegate_cloudflare_do::{Config, DurableObjects};
use tidegate_core::{
    BodyFormat, Check, ClientIpSource, Identity, Limiter as _, Millis, Platform, Policy, Quota, Rejection,
    ResponseFields, UnixMillis,
};
use worker::{Context, Date, Env, Request, Response, event};

tidegate_cloudflare_do::durable_object!(Tidegate);

#[event(fetch)]
async fn fetch(request: Request, env: Env, _context: Context) -> worker::Result<Response> {
    let field = request.headers().get("cf-connecting-ip")?.map(|value| ("cf-connecting-ip", value));
    let client_ip = ClientIpSource::new(Platform::Cloudflare).find(field, None).ok();
    let key = Identity { client_ip, ..Identity::default() }.resolve();

    let store = DurableObjects::from_env(&env, "TIDEGATE", Config::default()).map_err(|error| error.to_string())?;
    let policy = policy().map_err(|error| error.to_string())?;
    let now = UnixMillis::new(Date::now().as_millis());
    let decision = store.limiter().check(Check::new(&policy, &key, now)).await.map_err(|error| error.to_string())?;

    let (mut response, fields) = match Rejection::denied(&policy, &decision, BodyFormat::Json) {
        Some(rejection) => (Response::error(rejection.body(), rejection.status_code())?, rejection.fields().clone()),
        None => (Response::ok("allowed\n")?, ResponseFields::new(&policy, &decision)),
    };
    for (name, value) in fields.iter() {
        response.headers_mut().set(name, value)?;
    }
    Ok(response)
}

fn policy() -> Result<Policy, tidegate_core::Error> {
    Policy::new("api", [Quota::token_bucket(10, 5, Millis::from_secs(1))?])
}
