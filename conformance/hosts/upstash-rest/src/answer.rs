//! Converts Redis's answers to JSON.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use redis::Value;
use serde_json::{Value as JsonValue, json};

/// The encoding of strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// Plain text. Invalid UTF-8 is replaced.
    Plain,
    /// Base64, except a plain `OK`.
    Base64,
}

impl Encoding {
    pub(crate) fn asked_for(headers: &HeaderMap) -> Self {
        match headers.get("upstash-encoding") {
            Some(encoding) if encoding.as_bytes().eq_ignore_ascii_case(b"base64") => Self::Base64,
            _ => Self::Plain,
        }
    }

    fn text(self, bytes: &[u8]) -> JsonValue {
        match self {
            Self::Plain => String::from_utf8_lossy(bytes).into(),
            Self::Base64 => STANDARD.encode(bytes).into(),
        }
    }
}

/// Converts an answer. An error from Redis is returned as its text, and errors in an array become strings.
pub(crate) fn of_value(value: &Value, encoding: Encoding) -> Result<JsonValue, String> {
    if let Value::ServerError(error) = value {
        return Err(match error.details() {
            Some(detail) => format!("{} {detail}", error.code()),
            None => error.code().to_owned(),
        });
    }
    Ok(within(value, encoding))
}

fn within(value: &Value, encoding: Encoding) -> JsonValue {
    let all = |values: &[Value]| values.iter().map(|value| within(value, encoding)).collect();
    match value {
        Value::Nil => JsonValue::Null,
        Value::Okay => "OK".into(),
        Value::Int(number) => json!(number),
        Value::BulkString(bytes) => encoding.text(bytes),
        Value::SimpleString(text) => encoding.text(text.as_bytes()),
        Value::Array(values) | Value::Set(values) => all(values),
        other => of_value(other, encoding).unwrap_or_else(|error| encoding.text(error.as_bytes())),
    }
}
