use tidegate_redis::{Error, Lease, Limiter, Millis, Policy, Quota, Rest, RestConfig};

pub fn limiter(url: &str, token: &str) -> Result<(impl Limiter, Policy), Error> {
    let limiter = Rest::new(RestConfig::new(url, token))?.lending(Lease::new(50, Millis::from_secs(60)))?;
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
