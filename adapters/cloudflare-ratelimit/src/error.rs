//! What can go wrong, in the core's kinds.

use tidegate_core::algorithm::{Algorithm as _, FixedWindow};
use tidegate_core::{Error, ErrorKind, Millis};

/// A period that the platform does not offer.
pub(crate) fn period(period: Millis) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "period: the Rate Limiting binding cannot count {period}; write 10 s or 60 s, or take \
             tidegate-cloudflare-do for any period"
        ),
    )
}

/// A policy that is not the configured one.
pub(crate) fn another_policy(quota: &FixedWindow) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this binding is configured with limit {} and period {}: check a policy of one fixed_window quota with \
             these, or give the other policy a binding of its own",
            quota.limit(),
            quota.window()
        ),
    )
}

/// A binding that is not there.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn missing(name: &str, limit: u64, period: Millis, why: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "binding {name}: {why}; write in wrangler.jsonc: \"ratelimits\": [{{ \"name\": {name:?}, \"namespace_id\": \
             \"1001\", \"simple\": {{ \"limit\": {limit}, \"period\": {} }} }}]",
            period.as_secs_ceil()
        ),
    )
}

/// A binding that failed.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn failed(why: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the Rate Limiting binding did not answer: {why}; the request may have been counted"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binding_and_one_that_fails_are_two_kinds() {
        let missing = missing("LIMITER", 100, Millis::from_secs(60), "is undefined");
        assert_eq!(missing.kind(), ErrorKind::Invalid);
        assert_eq!(
            missing.to_string(),
            "binding LIMITER: is undefined; write in wrangler.jsonc: \"ratelimits\": [{ \"name\": \"LIMITER\", \
             \"namespace_id\": \"1001\", \"simple\": { \"limit\": 100, \"period\": 60 } }]"
        );
        let failed = failed("internal error");
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert!(failed.to_string().contains("internal error"));
    }
}
