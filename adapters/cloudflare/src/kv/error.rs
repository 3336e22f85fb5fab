//! The errors of this adapter, with the core's kinds.

use tidegate_core::{Error, ErrorKind};

/// The isolate can neither hold another key nor forget one.
pub(crate) fn full() -> Error {
    Error::new(
        ErrorKind::Refused,
        "this isolate is full: it has forgotten keys of too many policies; raise Config::keys_max, or use fewer policies; \
         nothing was charged",
    )
}

/// The binding does not exist.
#[cfg(any(all(target_arch = "wasm32", feature = "worker"), test))]
pub(crate) fn missing(name: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "binding {name}: not found; add it to wrangler.jsonc: \"kv_namespaces\": [{{ \"binding\": {name:?}, \"id\": \"…\" }}]"
        ),
    )
}

/// The error of an operation that failed: `why` is the text of the JavaScript error, and Workers KV reports nothing else.
///
/// Errors that a client can cause are not outages: a key that is written too often, too many operations in one invocation, and
/// a plan's budget that is used up.
#[must_use]
pub fn failed(what: &str, why: &str) -> Error {
    let says = |part: &str| why.as_bytes().windows(part.len()).any(|at| at == part.as_bytes());
    let kind = if says("failed: 429") || says("Too many") || says("Too Many") {
        ErrorKind::Contended
    } else if says("failed: 4") || says("limit exceeded") {
        ErrorKind::Refused
    } else {
        ErrorKind::Unavailable
    };
    Error::new(kind, format!("Workers KV: {what} failed: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_a_client_can_cause_is_not_an_outage() {
        for (why, kind) in [
            ("KV PUT failed: 429 Too Many Requests", ErrorKind::Contended),
            ("KV GET failed: 429 Too Many Requests", ErrorKind::Contended),
            ("Too many API requests by single Worker invocation.", ErrorKind::Contended),
            ("KV put() limit exceeded for the day.", ErrorKind::Refused),
            ("KV PUT failed: 400 Invalid expiration_ttl of 1", ErrorKind::Refused),
            ("KV GET failed: 414 UTF-8 encoded length of 600 exceeds key length limit of 512.", ErrorKind::Refused),
            ("KV PUT failed: 500 Internal Server Error", ErrorKind::Unavailable),
            ("Network connection lost.", ErrorKind::Unavailable),
        ] {
            assert_eq!(failed("put", &format!("js error: JsValue(Error: {why})")).kind(), kind, "{why}");
        }
        assert_eq!(missing("COUNTS").kind(), ErrorKind::Invalid);
    }
}
