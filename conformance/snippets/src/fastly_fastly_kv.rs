use tidegate_core::{Error, Limiter, Millis, Policy, Quota};
use tidegate_fastly::Kv;

pub fn limiter() -> Result<(impl Limiter, Policy), Error> {
    let limiter = Kv::open("tidegate")?.limiter();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
