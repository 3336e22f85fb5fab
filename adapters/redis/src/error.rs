//! Maps connection errors to the core's kinds.

use redis::{ErrorKind as RedisKind, RedisError};
use tidegate_core::{Error, ErrorKind, Millis};

use crate::answered::kind_of;
use crate::refusal::is_of_too_many;

/// The connection could not be opened.
pub(crate) fn not_connected(error: RedisError) -> Error {
    if let Some(known) = tidegate_remote::not_connected("redis", &error) {
        return known.with_source(error);
    }
    let refused = matches!(error.kind(), RedisKind::AuthenticationFailed | RedisKind::InvalidClientConfig)
        || error.code().is_some_and(|code| kind_of(code, "") == ErrorKind::Refused);
    let (kind, what) = match error.kind() {
        _ if is_of_too_many(&error) => {
            (ErrorKind::Contended, "the server accepts no more clients (maxclients); nothing was charged")
        }
        _ if refused => (ErrorKind::Refused, "the server refuses these credentials or settings; nothing was charged"),
        RedisKind::Parse | RedisKind::UnexpectedReturnType => (ErrorKind::Corrupt, NOT_REDIS),
        _ => (ErrorKind::Unavailable, "cannot connect; nothing was charged"),
    };
    Error::new(kind, format!("redis: {what}")).with_source(error)
}

/// The connection ended before the answer came.
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

pub(crate) fn timeout(deadline: Millis) -> Error {
    let message = format!("redis: no answer within {deadline}; the request may have been charged");
    Error::new(ErrorKind::Timeout, message)
}

pub(crate) fn too_many_in_flight(most: usize) -> Error {
    Error::new(ErrorKind::Contended, format!("redis: {most} calls are in flight already; nothing was charged"))
}

pub(crate) fn connect_timeout(deadline: Millis) -> Error {
    Error::new(ErrorKind::Unavailable, format!("redis: no connection within {deadline}; nothing was charged"))
}

/// The answer is not one of the script's.
pub(crate) fn nonsense(answer: &redis::Value) -> Error {
    let shown: String = format!("{answer:?}").chars().take(60).collect();
    Error::new(ErrorKind::Corrupt, format!("redis: {shown} is not an answer of Tidegate's script; {NOT_REDIS}"))
}

const NOT_REDIS: &str = "what listens there does not speak the Redis protocol; is it a Redis server?";
