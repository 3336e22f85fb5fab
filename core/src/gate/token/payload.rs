//! The payload of a token whose signature is valid.

use super::{Claims, InvalidToken, TokenRules};
use crate::UnixMillis;
use crate::document::{Node, Value};
use crate::quoted_text::Quoted;

impl Claims {
    /// Reads the payload of a token whose signature is valid, a JSON object, and checks that it is as expected at this instant:
    /// `iss`, `aud`, `exp`, which must be there, and `nbf` (RFC 7519, section 4.1).
    ///
    /// # Errors
    /// [`InvalidToken`] with the reason.
    pub fn of_payload(payload: &[u8], expected: &TokenRules, now: UnixMillis) -> Result<Self, InvalidToken> {
        let read = str::from_utf8(payload).ok().and_then(|text| Node::of_json(text, false).ok());
        let claims = read.filter(|claims| matches!(claims.value, Value::Table(_))).ok_or(InvalidToken::NOT_SIGNED)?;
        let lacks = InvalidToken("it lacks the issuer or the audience");
        if !expected.issuers.is_empty() {
            // RFC 7519 knows one issuer. Some write a list.
            let issuers = claims.get("iss").and_then(texts).ok_or(lacks)?;
            if !has_one(&expected.issuers, &issuers) {
                return Err(InvalidToken("it has another issuer"));
            }
        }
        match claims.get("aud").and_then(texts) {
            None if !expected.audience.is_empty() => return Err(lacks),
            // A token for somebody else is not for a server that has no name.
            Some(audience) if !has_one(&expected.audience, &audience) => {
                return Err(InvalidToken("it has another audience"));
            }
            _ => {}
        }
        on_time(&claims, expected, now)?;
        let named = |name: &str| if name.starts_with('/') { pointed(&claims, name) } else { claims.get(name) };
        let text = |claim: &Node| claim.as_text().or_else(|| claim.as_number()).map(Into::into);
        Self::read(expected, &|name| named(name).and_then(text), &|name| named(name).and_then(as_written))
    }
}

/// A claim that gives a limit. A text is in quotes, as it gives none.
fn as_written(claim: &Node) -> Option<String> {
    match &claim.value {
        Value::Bare(text) if text == "null" => None,
        Value::Bare(text) => Some(text.clone()),
        Value::Text(text) => Some(Quoted(text).to_string()),
        Value::List(_) => Some("a list".into()),
        Value::Table(_) => Some("a table".into()),
    }
}

/// The value that a JSON pointer (RFC 6901) names.
fn pointed<'a>(claims: &'a Node, pointer: &str) -> Option<&'a Node> {
    pointer.split('/').skip(1).try_fold(claims, |node, step| match &node.value {
        Value::List(list) if is_place(step) => list.get(step.parse::<usize>().ok()?),
        _ => node.get(&unescaped(step)),
    })
}

fn is_place(step: &str) -> bool {
    step.bytes().all(|byte| byte.is_ascii_digit()) && (step.len() == 1 || !step.starts_with('0'))
}

/// A step of a pointer, in which `~1` is a slash and `~0` a tilde.
fn unescaped(step: &str) -> String {
    let (mut text, mut rest) = (String::new(), step.chars());
    while let Some(character) = rest.next() {
        text.push(match (character, rest.as_str().bytes().next()) {
            ('~', Some(escaped @ (b'0' | b'1'))) => {
                rest.next();
                if escaped == b'0' { '~' } else { '/' }
            }
            _ => character,
        });
    }
    text
}

/// A text, or each text of a list.
fn texts(node: &Node) -> Option<Vec<&str>> {
    match &node.value {
        Value::Text(text) => Some(vec![text]),
        Value::List(list) => list.iter().map(Node::as_text).collect(),
        _ => None,
    }
}

fn has_one(expected: &[Box<str>], found: &[&str]) -> bool {
    expected.iter().any(|one| found.contains(&&**one))
}

/// Checks `exp`, which must be there, and `nbf`.
fn on_time(claims: &Node, expected: &TokenRules, now: UnixMillis) -> Result<(), InvalidToken> {
    let [now, leeway] = [now.get(), expected.leeway.get()].map(|span| i64::try_from(span).unwrap_or(i64::MAX));
    let at = |name| match claims.get(name) {
        None => Ok(None),
        Some(claim) => claim.as_number().map(millis).map(Some).ok_or(InvalidToken("exp or nbf is not a number")),
    };
    let expiry = at("exp")?.ok_or(InvalidToken("it never expires"))?;
    if now >= expiry.saturating_add(leeway) {
        return Err(InvalidToken("it has expired"));
    }
    if at("nbf")?.is_some_and(|start| now < start.saturating_sub(leeway)) {
        return Err(InvalidToken("it is not valid yet"));
    }
    Ok(())
}

/// A number of seconds in milliseconds, rounded up. Numbers with fractions would be much code, and inexact.
fn millis(seconds: &str) -> i64 {
    let (digits, is_negative) = seconds.strip_prefix('-').map_or((seconds, false), |rest| (rest, true));
    let (decimal, exponent) = digits.split_once(['e', 'E']).unwrap_or((digits, "0"));
    let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
    // What is beyond these bounds is zero, or longer than any time.
    let beyond = if exponent.starts_with('-') { isize::MIN } else { isize::MAX };
    let point = (whole.len() + 3).saturating_add_signed(exponent.parse().unwrap_or(beyond));
    let mut digits = whole.bytes().chain(fraction.bytes());
    let mut found: i64 = 0;
    for _ in 0..point.min(decimal.len() + 20) {
        let digit = digits.next().unwrap_or(b'0') - b'0';
        found = found.saturating_mul(10).saturating_add(digit.into());
    }
    let is_above = digits.any(|digit| digit != b'0');
    if is_negative { -found } else { found.saturating_add(is_above.into()) }
}

#[cfg(test)]
mod tests {
    use super::{millis, unescaped};

    #[test]
    fn seconds_may_have_a_fraction_and_an_exponent() {
        for (seconds, expected) in [
            ("0", 0),
            ("1700000000", 1_700_000_000_000),
            ("1700000000.5", 1_700_000_000_500),
            ("1700000000.0004", 1_700_000_000_001),
            ("1.7e9", 1_700_000_000_000),
            ("1.7000000005E+9", 1_700_000_000_500),
            ("17000000000000e-4", 1_700_000_000_000),
            ("1e-9", 1),
            ("0e999999999999999999999", 0),
            ("1e999999999999999999999", i64::MAX),
            ("1e-999999999999999999999", 1),
            ("0.00000000000000000000000000000000000000001e44", 1_000_000),
            ("-1.5", -1_500),
            ("-1e-9", 0),
            ("99999999999999999999999999", i64::MAX),
        ] {
            assert_eq!(millis(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn a_step_of_a_pointer_may_have_escapes() {
        for (step, text) in [("a", "a"), ("", ""), ("a~1b~0", "a/b~"), ("~01", "~1"), ("~~1~2~", "~/~2~")] {
            assert_eq!(unescaped(step), text);
        }
    }
}
