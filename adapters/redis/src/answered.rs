//! Maps errors that the server returned to the core's kinds, for every transport.

use tidegate_core::algorithm::GrantRefusal;
use tidegate_core::{Error, ErrorKind};

/// Maps an error by its text.
#[must_use]
pub fn refused(text: &str, key: &str) -> Error {
    let (code, detail) = text.split_once(' ').unwrap_or((text, ""));
    if detail.starts_with("Error compiling script") || has_word(detail, "shebang") {
        let message = format!(
            "key_locking: the database does not take the script's flag ({text}); write key_locking(false); nothing was charged"
        );
        return Error::new(ErrorKind::Refused, message);
    }
    answered(code, detail, key)
}

/// Maps an error by its first word, `code`, and the rest of its text.
pub(crate) fn answered(code: &str, detail: &str, key: &str) -> Error {
    match code {
        "REUSED" => return Error::token_reused(),
        "UNKNOWN" => return Error::unknown_charge(),
        "GRANT" => return not_granted(detail),
        _ => {}
    }
    let kind = kind_of(code, detail);
    let message = match kind {
        ErrorKind::Corrupt => format!(
            "what is stored under {key} is not a state of this policy ({code} {detail}); delete the key, or find what \
             else writes to it"
        ),
        _ => format!("redis: the server answered {code} {detail}; nothing was charged"),
    };
    Error::new(kind, message)
}

/// Why a balance took no grant.
fn not_granted(detail: &str) -> Error {
    match detail.split_once(' ') {
        Some(("room", room)) => GrantRefusal::PassesMax(room.parse().unwrap_or_default()).error(),
        _ if detail == "lots" => GrantRefusal::TooManyLots.error(),
        _ => GrantRefusal::HasExpired.error(),
    }
}

/// The kind for the error's first word (<https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors>).
pub(crate) fn kind_of(code: &str, detail: &str) -> ErrorKind {
    match code {
        "CORRUPT" | "WRONGTYPE" => ErrorKind::Corrupt,
        // Redis 6 wraps errors of the commands that a script calls.
        _ if has_word(detail, "WRONGTYPE") => ErrorKind::Corrupt,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY" | "READONLY"
        | "NOREPLICAS" => ErrorKind::Unavailable,
        // A flood that starts more and more processes uses up the server's connections.
        "ERR" if detail.starts_with("max number of clients") => ErrorKind::Contended,
        _ => ErrorKind::Refused,
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.split([' ', ':']).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use tidegate_core::ErrorKind;

    use super::{kind_of, refused};

    #[test]
    fn an_error_is_of_a_kind_by_its_first_word() {
        for (code, detail, kind) in [
            ("WRONGTYPE", "Operation against a key", ErrorKind::Corrupt),
            ("ERR", "Error running script: WRONGTYPE Operation against a key", ErrorKind::Corrupt),
            ("LOADING", "Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("ERR", "max number of clients reached", ErrorKind::Contended),
            ("ERR", "unknown command", ErrorKind::Refused),
            ("NOPERM", "this user has no permissions", ErrorKind::Refused),
        ] {
            assert_eq!(kind_of(code, detail), kind, "{code} {detail}");
            assert_eq!(refused(&format!("{code} {detail}"), "key").kind(), kind);
        }
        assert_eq!(refused("REUSED", "key").kind(), ErrorKind::TokenReused);
        assert_eq!(refused("UNKNOWN", "key").kind(), ErrorKind::UnknownCharge);
    }
}
