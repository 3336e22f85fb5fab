use tidegate_redis::{Config, Error, Lease, Limiter, Millis, Policy, Quota, Redis};

pub fn limiter(url: &str) -> Result<(impl Limiter, Policy), Error> {
    let limiter = Redis::new(Config::new(url))?.lending(Lease::new(50, Millis::from_secs(60)))?;
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
