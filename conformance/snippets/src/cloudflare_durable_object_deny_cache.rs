use tidegate_cloudflare::durable_objects::{Config, DurableObjects};
use tidegate_cloudflare::{DenyCache, Error, Limiter, Millis, Policy, Quota};
use worker::Env;

tidegate_cloudflare::durable_object!(Tidegate);

pub fn limiter(env: &Env) -> Result<(impl Limiter, Policy), Error> {
    let limiter = DenyCache::new(DurableObjects::from_env(env, "TIDEGATE", Config::default())?.limiter());
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
