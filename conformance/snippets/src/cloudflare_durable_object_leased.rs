use std::num::NonZero;
use tidegate_cloudflare::durable_objects::{Config, DurableObjects, Leases};
use tidegate_cloudflare::{Error, Limiter, Millis, Policy, Quota};
use worker::Env;

tidegate_cloudflare::durable_object!(Tidegate);

pub fn limiter(env: &Env) -> Result<(impl Limiter, Policy), Error> {
    let limiter = Leases::new(
        DurableObjects::from_env(env, "TIDEGATE", Config::default())?,
        const { NonZero::new(50).unwrap() },
        Millis::from_secs(60),
    )?;
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
