//! Maps errors of the REST protocol to the core's kinds.

use tidegate_core::internal::Quoted;
use tidegate_core::{Error, ErrorKind, Millis};
use tidegate_remote::{not_connected, overloaded};

use super::transport::NoAnswer;

/// The request got no answer.
pub(crate) fn no_answer(name: &str, why: NoAnswer, deadline: Millis) -> Error {
    match why {
        NoAnswer::NotConnected(source) => not_connected(name, &*source)
            .unwrap_or_else(|| {
                Error::new(ErrorKind::Unavailable, format!("{name}: cannot connect; nothing was charged"))
            })
            .with_source(source),
        NoAnswer::Lost(source) => {
            let message =
                format!("{name}: no connection, or lost before the answer; the request may have been charged");
            Error::new(ErrorKind::Unavailable, message).with_source(source)
        }
        NoAnswer::Late => late(name, deadline),
        NoAnswer::Overload => overloaded(late(name, deadline)),
    }
}

fn late(name: &str, deadline: Millis) -> Error {
    let message = format!("{name}: no answer within {deadline}; the request may have been charged");
    Error::new(ErrorKind::Timeout, message)
}

/// The status is not that of an answer of the script. `said` is the body.
#[must_use]
pub fn status(code: u16, said: &str) -> Error {
    let (kind, what) = match code {
        401 | 403 => (ErrorKind::Refused, "the token is refused; write the database's UPSTASH_REDIS_REST_TOKEN"),
        // A client can cause this with enough requests.
        429 => (ErrorKind::Contended, "the database itself limits its requests; nothing was charged"),
        504 => (ErrorKind::Timeout, "the database did not answer in time; the request may have been charged"),
        500.. => (ErrorKind::Unavailable, "the endpoint has failed; the request may have been charged"),
        0..200 | 300..=399 => {
            (ErrorKind::Refused, "it leads elsewhere; write the database's own UPSTASH_REDIS_REST_URL")
        }
        _ => (ErrorKind::Corrupt, NOT_REST),
    };
    Error::new(kind, format!("upstash: HTTP {code} {}: {what}", Quoted(said)))
}

/// The answer is not one of the script's.
#[must_use]
pub fn nonsense(name: &str, shown: &str) -> Error {
    let why = if name == "upstash" { NOT_REST } else { "does the client change replies?" };
    Error::new(ErrorKind::Corrupt, format!("{name}: {} is not an answer of Tidegate's script; {why}", Quoted(shown)))
}

const NOT_REST: &str = "what listens there does not speak Upstash's REST protocol; is it UPSTASH_REDIS_REST_URL?";
