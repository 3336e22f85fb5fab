//! The common and the combined log format of Apache and nginx.
//!
//! ```text
//! 192.0.2.1 - alice [10/Oct/2000:13:55:36 -0700] "GET /index.html HTTP/1.1" 200 2326 "https://example.com/" "Mozilla/5.0"
//! ```
//!
//! Both servers escape quotes and control characters, so nothing that a client sends can end a field: Apache writes `\"`
//! (see [`mod_log_config`](https://httpd.apache.org/docs/2.4/mod/mod_log_config.html)), and nginx `\x22` (see
//! [`log_format`](https://nginx.org/en/docs/http/ngx_http_log_module.html)).

use std::borrow::Cow;

use memchr::{memchr, memchr_iter};

use super::entry::{Entry, Parsed, Unreadable, address, present, request_line, target};
use super::time::Clock;

pub(super) fn parse<'a>(line: &'a str, clock: &mut Clock) -> Result<Parsed<'a>, Unreadable> {
    // The name of a user may have any character but a quote. So the first quote after a bracket begins the request.
    let bytes = line.as_bytes();
    let quote = memchr_iter(b'"', bytes).find(|at| bytes[..*at].ends_with(b"] "));
    let Some(quote) = quote else {
        return Err(if line.contains('[') { Unreadable::NoRequest } else { Unreadable::NoTime });
    };
    let before = &line[..quote - 2];
    let bracket = before.rfind('[').ok_or(Unreadable::NoTime)?;
    let (who, time) = (&before[..bracket], &before[bracket + 1..]);
    let at = clock.read(time).ok_or(Unreadable::BadTime)?;
    let (request, rest) = quoted(&line[quote + 1..]).ok_or(Unreadable::NoRequest)?;
    let Some((method, path)) = request_line(request) else { return Ok(Parsed::NoRequest) };
    let (host, peer) = sender(who);
    let (in_target, path) = target(unescaped(path));
    let status = rest.get(1..4).and_then(|status| status.parse().ok());
    // The second quoted field after the request. The first is the page that links here.
    let agent = next_quoted(rest).and_then(|(_, rest)| next_quoted(rest)).map(|(agent, _)| agent);
    Ok(Parsed::Request(Entry {
        at,
        peer,
        method: method.into(),
        path,
        host: in_target.or(host.map(Cow::Borrowed)),
        agent: agent.map(Cow::Borrowed).and_then(present),
        status,
        subject: None,
        tier: None,
    }))
}

/// The virtual host, if it is written first, and the address.
fn sender(who: &str) -> (Option<&str>, Option<std::net::IpAddr>) {
    let mut words = who.split(' ');
    let first = words.next().unwrap_or_default();
    let peer = address(first);
    if peer.is_some() {
        return (None, peer);
    }
    match words.next().and_then(address) {
        Some(peer) => (Some(first).filter(|host| *host != "-"), Some(peer)),
        None => (None, None),
    }
}

/// Splits at the quote that ends a field.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let bytes = text.as_bytes();
    let escapes = |end: usize| bytes[..end].iter().rev().take_while(|byte| **byte == b'\\').count();
    let end = memchr_iter(b'"', bytes).find(|end| escapes(*end) % 2 == 0)?;
    Some((&text[..end], &text[end + 1..]))
}

fn next_quoted(text: &str) -> Option<(&str, &str)> {
    quoted(&text[memchr(b'"', text.as_bytes())? + 1..])
}

/// Resolves `\"`, `\\` and `\x22`.
fn unescaped(text: &str) -> Cow<'_, str> {
    if memchr(b'\\', text.as_bytes()).is_none() {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'\\', [b'x', high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, after),
                _ => (b'\\', &rest[1..]),
            },
            (b'\\', [escaped @ (b'"' | b'\\'), after @ ..]) => (*escaped, after),
            _ => (*byte, after),
        };
        out.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
