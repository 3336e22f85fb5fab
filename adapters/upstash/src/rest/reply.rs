//! What a response says.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use tollgate_core::Error;

use super::{Response, error};

/// What the database answered to one command, as far as Tollgate's commands are answered.
#[derive(Debug)]
pub(crate) enum Reply {
    Text(String),
    Integer,
    /// An error of the database's own, by its first word.
    Error(String),
}

/// The body of every response.
#[derive(Deserialize)]
struct Envelope {
    result: Option<Reply>,
    error: Option<String>,
}

impl Reply {
    /// Reads a response. `shown` makes of what the endpoint said what may be repeated.
    pub(crate) fn read(response: &Response, shown: impl Fn(&str) -> String) -> Result<Self, Error> {
        let body = || shown(&String::from_utf8_lossy(&response.body));
        match (response.status, serde_json::from_slice(&response.body)) {
            (200..300, Ok(Envelope { result: Some(reply), error: None })) => Ok(reply),
            // What the status says goes before what the text says.
            (200..300 | 400 | 404..429, Ok(Envelope { error: Some(text), .. })) => Ok(Self::Error(shown(&text))),
            (200..300, _) => Err(error::nonsense(&body())),
            (code, Ok(Envelope { error: Some(text), .. })) => Err(error::status(code, &shown(&text))),
            (code, _) => Err(error::status(code, &body())),
        }
    }

    pub(crate) fn is_noscript(&self) -> bool {
        matches!(self, Self::Error(text) if text.starts_with("NOSCRIPT"))
    }
}

/// The bytes of a text: what was asked for in base64 may come as it is from an endpoint that does not know of it. An
/// answer of the script's is never both, for none is four letters and longer ones have a space.
pub(crate) fn bytes(text: &str) -> Cow<'_, [u8]> {
    STANDARD.decode(text).map_or(Cow::Borrowed(text.as_bytes()), Cow::Owned)
}

impl<'de> Deserialize<'de> for Reply {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ReplyVisitor)
    }
}

struct ReplyVisitor;

impl Visitor<'_> for ReplyVisitor {
    type Value = Reply;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or a whole number")
    }

    fn visit_str<E>(self, text: &str) -> Result<Reply, E> {
        Ok(Reply::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Reply, E> {
        Ok(Reply::Text(text))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Reply, E> {
        Ok(Reply::Integer)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Reply, E> {
        Ok(Reply::Integer)
    }
}
