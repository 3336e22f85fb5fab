use tidegate_spin::{Error, Limiter, Millis, Policy, Quota, SpinKv};

pub fn limiter() -> Result<(impl Limiter, Policy), Error> {
    let limiter = SpinKv::open("default")?.limiter();
    let policy = Policy::new("api", [Quota::fixed_window(100, Millis::new(60000))?])?;
    Ok((limiter, policy))
}
