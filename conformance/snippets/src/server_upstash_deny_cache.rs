use tidegate_redis::{DenyCache, Error, Limiter, Millis, Policy, Quota, Rest, RestConfig};

pub fn limiter(url: &str, token: &str) -> Result<(impl Limiter, Policy), Error> {
    let limiter = DenyCache::new(Rest::new(RestConfig::new(url, token))?.limiter());
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
