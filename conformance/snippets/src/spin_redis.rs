use tidegate_spin::{Error, Limiter, Millis, Policy, Quota, RedisConnection, SpinRedis};

pub fn limiter(url: &str) -> Result<(impl Limiter, Policy), Error> {
    let limiter = SpinRedis::new(RedisConnection::open(url)?).limiter();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
