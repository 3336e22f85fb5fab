use tidegate_cloudflare::kv::{Config, SharedKv};
use tidegate_cloudflare::{Error, Limiter, Millis, Policy, Quota};
use worker::Env;

pub fn limiter(env: &Env) -> Result<(impl Limiter, Policy), Error> {
    let limiter = SharedKv::from_env(env, "COUNTS", Config::default())?;
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
