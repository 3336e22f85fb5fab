//! What Workers KV says went wrong, in the core's kinds.

use tidegate_core::{Error, ErrorKind};

/// An isolate that holds as many keys as it may.
pub(crate) fn full(keys_max: usize) -> Error {
    Error::new(
        ErrorKind::Refused,
        format!(
            "this isolate holds {keys_max} keys whose counts still matter; allow more with Config::keys_max, or take \
             shorter windows; nothing was charged"
        ),
    )
}

/// A namespace that is not bound.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn missing(name: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "binding {name}: {why}; write in wrangler.jsonc: \"kv_namespaces\": [{{ \"binding\": {name:?}, \"id\": \"…\" }}]"
        ),
    )
}

/// An operation that failed. Workers KV tells which way only in the text of a JavaScript error.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn failed(what: &str, why: &str) -> Error {
    let says = |part: &str| why.as_bytes().windows(part.len()).any(|at| at == part.as_bytes());
    let kind = if says("429") || says("Too Many Requests") {
        ErrorKind::Contended
    } else if says(" 400 ") || says(" 413 ") || says(" 414 ") {
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
    fn a_throttled_write_is_told_from_one_that_failed() {
        let kind = |why| failed("put", why).kind();
        assert_eq!(kind("js error: JsValue(Error: KV PUT failed: 429 Too Many Requests)"), ErrorKind::Contended);
        assert_eq!(
            kind("js error: JsValue(Error: KV PUT failed: 400 Invalid expiration_ttl of 1)"),
            ErrorKind::Refused
        );
        assert_eq!(kind("js error: JsValue(Error: Network connection lost.)"), ErrorKind::Unavailable);
        assert_eq!(missing("COUNTS", "is undefined").kind(), ErrorKind::Invalid);
    }
}
