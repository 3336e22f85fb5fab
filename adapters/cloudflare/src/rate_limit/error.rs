//! The errors of this adapter, with the core's kinds.

use tidegate_core::algorithm::{Algorithm as _, FixedWindow};
use tidegate_core::{Error, ErrorKind, Millis};

/// The platform does not offer this period.
pub(crate) fn period(period: Millis) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "period: the Rate Limiting binding cannot count {period}; use 10 s or 60 s, or use `durable_objects` for \
             other periods"
        ),
    )
}

/// The policy differs from the configured one.
pub(crate) fn another_policy(quota: &FixedWindow) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this binding is configured with limit {} and period {}: check a policy of one fixed_window quota with the same \
             numbers, or configure another binding for this policy",
            quota.limit(),
            quota.window()
        ),
    )
}

/// The binding does not exist.
#[cfg(any(all(target_arch = "wasm32", feature = "worker"), test))]
pub(crate) fn missing(name: &str, limit: u64, period: Millis) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "binding {name}: not found; add it to wrangler.jsonc: \"ratelimits\": [{{ \"name\": {name:?}, \"namespace_id\": \
             \"1001\", \"simple\": {{ \"limit\": {limit}, \"period\": {} }} }}]",
            period.as_secs_ceil()
        ),
    )
}

/// The error of a call that failed: `why` is the text of the JavaScript error, and the binding reports nothing else.
///
/// Errors that a client can cause are not outages: a key that the binding rejects, and too many calls.
#[must_use]
pub fn failed(why: &str) -> Error {
    let says = |part: &str| why.as_bytes().windows(part.len()).any(|at| at.eq_ignore_ascii_case(part.as_bytes()));
    let kind = if says("429") || says("too many") {
        ErrorKind::Contended
    } else if ["invalid", "bad rate limit", "must be", "TypeError", "RangeError"].into_iter().any(says) {
        ErrorKind::Refused
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, format!("Rate Limiting binding: call failed: {why}; the request may have been counted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binding_is_invalid_and_says_what_to_configure() {
        let missing = missing("LIMITER", 100, Millis::from_secs(60));
        assert_eq!(missing.kind(), ErrorKind::Invalid);
        assert_eq!(
            missing.to_string(),
            "binding LIMITER: not found; add it to wrangler.jsonc: \"ratelimits\": [{ \"name\": \"LIMITER\", \
             \"namespace_id\": \"1001\", \"simple\": { \"limit\": 100, \"period\": 60 } }]"
        );
    }

    #[test]
    fn an_error_that_a_client_can_cause_is_not_an_outage() {
        for (why, kind) in [
            ("Error: internal error; reference = 0a1b", ErrorKind::Unavailable),
            ("Error: Network connection lost.", ErrorKind::Unavailable),
            ("Error: 429 Too Many Requests", ErrorKind::Contended),
            ("Error: Too many subrequests.", ErrorKind::Contended),
            ("Error: invalid key: 5", ErrorKind::Refused),
            ("Error: bad rate limit options: [cost]", ErrorKind::Refused),
            ("TypeError: Incorrect type for the 'key' field", ErrorKind::Refused),
        ] {
            let error = failed(&format!("js error: JsValue({why})"));
            assert_eq!(error.kind(), kind, "{why}");
            assert!(error.to_string().contains(why));
        }
    }
}
