use tidegate_fastly::{Error, Kv, Limiter, Millis, Policy, Quota};

pub fn limiter() -> Result<(impl Limiter, Policy), Error> {
    let limiter = Kv::open("tidegate")?.limiter();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
