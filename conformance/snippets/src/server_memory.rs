use tidegate_core::{Error, Limiter, MemoryLimiter, Millis, Policy, Quota};

pub fn limiter() -> Result<(impl Limiter, Policy), Error> {
    let limiter = MemoryLimiter::new();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
