//! The payload of a token whose signature is valid.

use serde_json::Value;

use super::{Claims, InvalidToken, TokenRules};
use crate::UnixMillis;

impl Claims {
    /// Reads the payload of a token whose signature is valid, a JSON object, and checks that it is as expected at this instant:
    /// `iss`, `aud`, `exp`, which must be there, and `nbf` (RFC 7519, section 4.1).
    ///
    /// # Errors
    /// [`InvalidToken`] with the reason.
    pub fn of_payload(payload: &[u8], expected: &TokenRules, now: UnixMillis) -> Result<Self, InvalidToken> {
        let claims = serde_json::from_slice::<Value>(payload).ok().filter(Value::is_object);
        let claims = claims.ok_or(InvalidToken::NOT_SIGNED)?;
        let lacks = InvalidToken("it lacks the issuer or the audience");
        if !expected.issuers.is_empty() {
            // RFC 7519 knows one issuer. Some write a list.
            let issuers = texts(&claims["iss"]).ok_or(lacks)?;
            if !has_one(&expected.issuers, &issuers) {
                return Err(InvalidToken("it has another issuer"));
            }
        }
        match texts(&claims["aud"]) {
            None if !expected.audience.is_empty() => return Err(lacks),
            // A token for somebody else is not for a server that has no name.
            Some(audience) if !has_one(&expected.audience, &audience) => {
                return Err(InvalidToken("it has another audience"));
            }
            _ => {}
        }
        on_time(&claims, expected, now)?;
        Self::new(expected, |name| {
            let claim = if name.starts_with('/') { claims.pointer(name) } else { claims.get(name) };
            match claim? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            }
        })
    }
}

/// A text, or each text of a list.
fn texts(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

fn has_one(expected: &[Box<str>], found: &[&str]) -> bool {
    expected.iter().any(|one| found.contains(&&**one))
}

/// Checks `exp`, which must be there, and `nbf`.
fn on_time(claims: &Value, expected: &TokenRules, now: UnixMillis) -> Result<(), InvalidToken> {
    // Both are seconds, and may have a fraction.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit into 53 bits until the year 287396")]
    let (now, leeway) = (now.get() as f64 / 1_000.0, expected.leeway.get() as f64 / 1_000.0);
    let seconds = |name| match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_f64().map(Some).ok_or(InvalidToken("exp or nbf is not a number")),
    };
    let expiry = seconds("exp")?.ok_or(InvalidToken("it never expires"))?;
    if now >= expiry + leeway {
        return Err(InvalidToken("it has expired"));
    }
    if seconds("nbf")?.is_some_and(|start| now < start - leeway) {
        return Err(InvalidToken("it is not valid yet"));
    }
    Ok(())
}
