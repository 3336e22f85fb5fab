//! Interprets a response.

use tidegate_core::Error;

use super::json::{self, Reply};
use super::transport::Response;
use super::{ANSWER_LEN_MAX, error};

/// Interprets a response of the database that errors call `name`. `shown` removes secrets from its text.
pub(crate) fn read(name: &str, response: &Response, shown: impl Fn(&str) -> String) -> Result<Reply, Error> {
    if response.body.len() > ANSWER_LEN_MAX {
        return Err(error::nonsense(name, "an answer of more than a megabyte"));
    }
    let body = String::from_utf8_lossy(&response.body);
    match (response.status, json::reply(&body)) {
        // The status takes precedence over the text.
        (200..300 | 400 | 404..429, Some(Reply::Error(text))) => Ok(Reply::Error(shown(&text))),
        (200..300, Some(reply)) => Ok(reply),
        (200..300, None) => Err(error::nonsense(name, &shown(&body))),
        (code, Some(Reply::Error(text))) => Err(error::status(code, &shown(&text))),
        (code, _) => Err(error::status(code, &shown(&body))),
    }
}
