//! What can go wrong, in the core's kinds.

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

/// A store that failed. Of a write that failed none can tell whether it was done.
#[cfg(any(target_arch = "wasm32", test))]
pub(crate) fn failed(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("key-value store: {what} failed: {why}"))
}

/// A counter that is none.
pub(crate) fn no_counter(key: &str, found: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} holds {} bytes that are no counter of this store; delete the key, or find what else writes to it",
            found.len()
        ),
    )
}

/// A counter that nothing here leaves behind.
pub(crate) fn no_count(key: &str, found: i64) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} counts {found}, which nothing here leaves; delete the key, or find what else writes to it"
        ),
    )
}

/// A pair of windows that is none.
pub(crate) fn no_windows(key: &str, found: &[u8]) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "key {key:?} holds {} bytes that are no pair of windows; delete the key, or find what else writes to it",
            found.len()
        ),
    )
}

/// A row that was elected, and removed since.
pub(crate) fn row_gone(row: &str, ballot: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("key {row:?} is gone, and {ballot:?} still names it; delete that key, too"))
}

/// An election that others kept disturbing.
pub(crate) fn disturbed(ballot: &str, attempts: u32) -> Error {
    Error::new(
        ErrorKind::Contended,
        format!("{attempts} others claimed {ballot:?} at once; nothing was charged; retry"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_not_allowed_is_told_from_one_that_fails() {
        let refused = no_store("limits", "access denied");
        assert_eq!(refused.kind(), ErrorKind::Invalid);
        assert_eq!(
            refused.to_string(),
            "key-value store \"limits\": access denied; write in spin.toml, under the component: key_value_stores = \
             [\"limits\"]"
        );
        let failed = failed("set", "database is locked");
        assert_eq!(failed.kind(), ErrorKind::Unavailable);
        assert_eq!(failed.to_string(), "key-value store: set failed: database is locked");
    }
}
