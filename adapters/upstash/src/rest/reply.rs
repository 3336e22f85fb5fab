//! What a response says.

use std::borrow::Cow;

use tollgate_core::Error;

use super::json::{self, Reply};
use super::{Response, error, http};

/// Reads a response. `shown` makes of what the endpoint said what may be repeated.
pub(crate) fn read(response: &Response, shown: impl Fn(&str) -> String) -> Result<Reply, Error> {
    let body = String::from_utf8_lossy(&response.body);
    match (response.status, json::reply(&body)) {
        // What the status says goes before what the text says.
        (200..300 | 400 | 404..429, Some(Reply::Error(text))) => Ok(Reply::Error(shown(&text))),
        (200..300, Some(reply)) => Ok(reply),
        (200..300, None) => Err(error::nonsense(&shown(&body))),
        (code, Some(Reply::Error(text))) => Err(error::status(code, &shown(&text))),
        (code, _) => Err(error::status(code, &shown(&body))),
    }
}

/// The bytes of a text: what was asked for in base64 may come as it is from an endpoint that does not know of it. An
/// answer of the script's is never both, for none is four letters and longer ones have a space.
pub(crate) fn bytes(text: &str) -> Cow<'_, [u8]> {
    http::from_base64(text).map_or(Cow::Borrowed(text.as_bytes()), Cow::Owned)
}
