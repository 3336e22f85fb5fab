use tidegate_redis::{Config, DenyCache, Error, Limiter, Millis, Policy, Quota, Redis};

pub fn limiter(url: &str) -> Result<(impl Limiter, Policy), Error> {
    let limiter = DenyCache::new(Redis::new(Config::new(url))?.limiter());
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
