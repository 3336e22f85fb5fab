//! What Redis says went wrong, in the core's kinds.

use redis::{ErrorKind as RedisKind, RedisError, ServerError};
use tollgate_core::{Error, ErrorKind, Millis};

/// A connection that could not be made.
pub(crate) fn not_connected(error: RedisError) -> Error {
    let refused = matches!(error.kind(), RedisKind::AuthenticationFailed | RedisKind::InvalidClientConfig)
        || error.code().is_some_and(|code| kind_of(code, "") == ErrorKind::Refused);
    let (kind, what) = match error.kind() {
        _ if refused => (ErrorKind::Refused, "the server refuses these credentials or settings; nothing was charged"),
        RedisKind::Parse | RedisKind::UnexpectedReturnType => (ErrorKind::Corrupt, NOT_REDIS),
        _ => (ErrorKind::Unavailable, "cannot connect; nothing was charged"),
    };
    Error::new(kind, format!("redis: {what}")).with_source(error)
}

/// A connection that ended before the answer came.
pub(crate) fn lost(error: RedisError) -> Error {
    let (kind, what) = match error.kind() {
        RedisKind::Parse | RedisKind::UnexpectedReturnType => (ErrorKind::Corrupt, NOT_REDIS),
        RedisKind::Server(_) | RedisKind::Extension => {
            let code = error.code().unwrap_or_default();
            (
                kind_of(code, error.detail().unwrap_or_default()),
                "the server answered with an error; nothing was charged",
            )
        }
        _ => (ErrorKind::Unavailable, "the connection was lost before the answer; the request may have been charged"),
    };
    Error::new(kind, format!("redis: {what}")).with_source(error)
}

/// An error that the server answered with.
pub(crate) fn answered(error: &ServerError, key: &str) -> Error {
    let (code, detail) = (error.code(), error.details().unwrap_or_default());
    let kind = kind_of(code, detail);
    let message = match kind {
        ErrorKind::Corrupt => format!(
            "what is stored under {key} is no state of this policy ({code} {detail}); delete the key, or find what \
             else writes to it"
        ),
        _ => format!("redis: the server answered {code} {detail}; nothing was charged"),
    };
    Error::new(kind, message)
}

pub(crate) fn timeout(deadline: Millis) -> Error {
    let message = format!("redis: no answer within {deadline}; the request may have been charged");
    Error::new(ErrorKind::Timeout, message)
}

pub(crate) fn connect_timeout(deadline: Millis) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis: no connection within {deadline}; nothing was charged"))
}

/// An answer that the script does not give.
pub(crate) fn nonsense(answer: &redis::Value) -> Error {
    let shown: String = format!("{answer:?}").chars().take(60).collect();
    Error::new(ErrorKind::Corrupt, format!("redis: {shown} is no answer of Tollgate's script; {NOT_REDIS}"))
}

const NOT_REDIS: &str = "what listens there does not speak the Redis protocol; is it a Redis server?";

/// By the error's first word (<https://redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors>).
fn kind_of(code: &str, detail: &str) -> ErrorKind {
    match code {
        "CORRUPT" | "WRONGTYPE" => ErrorKind::Corrupt,
        // Redis 6 wraps what a command of a script answers.
        _ if detail.contains("WRONGTYPE") => ErrorKind::Corrupt,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY" | "READONLY"
        | "NOREPLICAS" => ErrorKind::Unavailable,
        "ERR" if detail.contains("max number of clients") => ErrorKind::Unavailable,
        _ => ErrorKind::Refused,
    }
}
