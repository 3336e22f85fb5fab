//! The policies.

use std::str::FromStr;

use tidegate_cloudflare::PerIsolate;
use tidegate_core::{Error, ErrorKind, Millis, Policy, Quota};
use worker::Env;
use worker::js_sys::Reflect;
use worker::wasm_bindgen::JsValue;

/// A token bucket from the variables `CAPACITY` and `REFILL_PER_S`. Each isolate reads them once.
pub(crate) fn api(env: &Env) -> Result<&'static Policy, Error> {
    static POLICY: PerIsolate<Policy> = PerIsolate::new();
    POLICY.get_or_make(|| {
        let (capacity, refill) = (number(env, "CAPACITY")?, number(env, "REFILL_PER_S")?);
        let bucket = Quota::token_bucket(capacity, refill, Millis::from_secs(1))?.named("burst")?;
        Policy::new("api", [bucket])
    })
}

/// The limit of the binding `LIMITER_100_60`. The platform does not report it, so it is repeated here.
pub(crate) fn per_location() -> Result<&'static Policy, Error> {
    static POLICY: PerIsolate<Policy> = PerIsolate::new();
    POLICY.get_or_make(|| Policy::new("per-location", [Quota::fixed_window(100, Millis::from_secs(60))?]))
}

pub(crate) fn number(env: &Env, name: &str) -> Result<u64, Error> {
    let value = variable(env, name);
    u64::from_str(&value).map_err(|_| {
        let message =
            format!("variable {name}: {value:?} is not a whole number; write one in wrangler.jsonc, in quotes");
        Error::new(ErrorKind::Invalid, message)
    })
}

/// Returns a variable, or an empty string if it is not set.
pub(crate) fn variable(env: &Env, name: &str) -> String {
    let value = Reflect::get(env.as_ref(), &JsValue::from_str(name));
    value.ok().and_then(|value| value.as_string()).unwrap_or_default()
}
