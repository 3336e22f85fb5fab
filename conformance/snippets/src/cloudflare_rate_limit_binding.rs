use tidegate_cloudflare::rate_limit::RateLimit;
use tidegate_cloudflare::{Error, Limiter, Millis, Policy, Quota};
use worker::Env;

pub fn limiter(env: &Env) -> Result<(impl Limiter, Policy), Error> {
    let limiter = RateLimit::from_env(env, "LIMITER", 100, Millis::new(60000))?.limiter();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
