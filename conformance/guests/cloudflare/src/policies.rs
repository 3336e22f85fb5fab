//! What is limited to what.

use std::str::FromStr;
use std::sync::OnceLock;

use tollgate_core::{Error, ErrorKind, Millis, Policy, Quota};
use worker::Env;

/// A burst of the variable `CAPACITY`, of which `REFILL_PER_S` come back a second. Read once in an isolate's life.
pub(crate) fn api(env: &Env) -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    once(&POLICY, || {
        let (capacity, refill) = (number(env, "CAPACITY")?, number(env, "REFILL_PER_S")?);
        let bucket = Quota::token_bucket(capacity, refill, Millis::from_secs(1))?.named("burst")?;
        Policy::new("api", [bucket])
    })
}

/// The platform decides by the binding `LIMITER_100_60`, and tells nothing of it: these are the same two numbers.
pub(crate) fn per_location() -> Result<&'static Policy, Error> {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    once(&POLICY, || Policy::new("per-location", [Quota::fixed_window(100, Millis::from_secs(60))?]))
}

fn once(
    policy: &'static OnceLock<Policy>,
    make: impl FnOnce() -> Result<Policy, Error>,
) -> Result<&'static Policy, Error> {
    match policy.get() {
        Some(policy) => Ok(policy),
        None => make().map(|made| policy.get_or_init(|| made)),
    }
}

pub(crate) fn number(env: &Env, name: &str) -> Result<u64, Error> {
    let value = env.var(name).map(|value| value.to_string()).unwrap_or_default();
    u64::from_str(&value).map_err(|_| {
        let message = format!("variable {name}: {value:?} is no whole number; write one in wrangler.jsonc, in quotes");
        Error::new(ErrorKind::Invalid, message)
    })
}
