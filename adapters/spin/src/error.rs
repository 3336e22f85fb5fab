//! The errors of this adapter, with the core's kinds.

use tidegate_core::{Error, ErrorKind};

/// A store that the app may not open, or that the host does not have.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn no_store(label: &str, why: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "key-value store {label:?}: {why}; write in spin.toml, under the component: key_value_stores = [{label:?}]"
        ),
    )
}

/// A store that failed. A failed write may still have been applied.
///
/// A store that is busy is [`ErrorKind::Contended`]: a client can cause that by sending many requests.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn failed(what: &str, why: &str) -> Error {
    const BUSY: [&str; 6] = ["locked", "busy", "too many requests", "rate limit", "throttl", "429"];
    let lower = why.to_ascii_lowercase();
    let kind = if BUSY.iter().any(|word| lower.contains(word)) { ErrorKind::Contended } else { ErrorKind::Unavailable };
    Error::new(kind, format!("key-value store: {what} failed: {why}"))
}

/// A counter in decimal digits, where compare-and-swap is needed.
pub(crate) fn wrong_store(key: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        format!(
            "this store counts in decimal digits (key {key:?}), as Spin's Redis store does, and the compare-and-swap of \
             that store is not reliable; use SpinWindow on this store, or SpinRedis on the Redis server itself"
        ),
    )
}

/// A value that is not a counter.
pub(crate) fn no_counter(key: &str, found: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} holds {} bytes that are not a counter; delete the key, or find what else writes to it",
            found.len()
        ),
    )
}

/// A counter with a value that Tidegate never leaves behind.
pub(crate) fn no_count(key: &str, found: i64) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} counts {found}, which Tidegate did not write; delete the key, or find what else writes to it"
        ),
    )
}

/// A value that does not name a window.
pub(crate) fn no_windows(key: &str, found: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} holds {} bytes that do not name a window; delete the key, or find what else writes to it",
            found.len()
        ),
    )
}

/// A row that was elected and then removed.
pub(crate) fn row_gone(row: &str, ballot: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("key {row:?} is gone, but {ballot:?} still refers to it; delete that key, too"),
    )
}

/// An election that other requests kept disturbing.
pub(crate) fn disturbed(ballot: &str, attempts: u32) -> Error {
    Error::new(
        ErrorKind::Contended,
        format!("{attempts} other requests claimed {ballot:?} at the same time; nothing was charged; retry"),
    )
}

/// A Redis server that the app may not connect to.
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub(crate) fn no_server() -> Error {
    Error::new(
        ErrorKind::Invalid,
        "redis: the address is not a Redis URL, or this component may not connect to it; write in spin.toml, under the \
         component: allowed_outbound_hosts = [\"redis://<host>:<port>\"]",
    )
}

/// The host has no room for another connection. A client can cause that by sending many requests.
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub(crate) fn too_many_connections() -> Error {
    Error::new(ErrorKind::Contended, "redis: too many connections are open; nothing was charged; retry")
}

/// A Redis server that the host cannot connect to.
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub(crate) fn not_connected(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis: cannot connect: {why}; nothing was charged"))
}

/// A Redis server that did not answer.
#[cfg(all(target_arch = "wasm32", feature = "redis"))]
pub(crate) fn no_answer(command: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis: {command}: {why}; the request may have been charged"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_store_is_invalid_and_names_the_setting() {
        let refused = no_store("limits", "access denied");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(
            refused.to_string(),
            "key-value store \"limits\": access denied; write in spin.toml, under the component: key_value_stores = \
             [\"limits\"]"
        );
    }

    #[test]
    fn a_busy_store_is_contended_and_a_failing_one_is_unavailable() {
        for busy in ["database is locked", "SQLITE_BUSY", "Too Many Requests", "rate limited", "throttled", "HTTP 429"]
        {
            assert_eq!(failed("set", busy).kind(), ErrorKind::Contended, "{busy}");
        }
        for down in ["disk I/O error", "Connection refused (os error 111)", "no such store"] {
            assert_eq!(failed("set", down).kind(), ErrorKind::Unavailable, "{down}");
        }
        assert_eq!(failed("set", "database is locked").to_string(), "key-value store: set failed: database is locked");
    }
}
