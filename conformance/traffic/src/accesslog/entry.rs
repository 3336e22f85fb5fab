//! One request of a log.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tidegate_core::UnixMillis;

use super::fields::Field;

/// A request, as a log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When it came.
    pub at: UnixMillis,
    /// The client's address. `None` if the log has none, or something else such as a host name.
    pub peer: Option<IpAddr>,
    /// The method.
    pub method: Cow<'a, str>,
    /// The path, which may have a query.
    pub path: Cow<'a, str>,
    /// The host, if the log has it.
    pub host: Option<Cow<'a, str>>,
    /// The user agent, if the log has it.
    pub agent: Option<Cow<'a, str>>,
    /// The status of the server's answer, if the log has it.
    pub status: Option<u16>,
    /// The verified subject, if a field was named for it.
    pub subject: Option<Cow<'a, str>>,
    /// The sender's tier, if a field was named for it.
    pub tier: Option<Cow<'a, str>>,
}

/// What a line of a log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// A request.
    Request(Entry<'a>),
    /// A line of an access log about bytes that were no HTTP request, such as `"-"` or the start of a TLS connection.
    NoRequest,
    /// Nothing.
    Blank,
}

/// Why a line cannot be read. Its text says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It has no time in brackets.
    NoTime,
    /// It has no request in quotes, or the closing quote is missing.
    NoRequest,
    /// Its time cannot be read.
    BadTime,
    /// It begins with a brace and is not JSON.
    NoJson,
    /// It has no such field.
    NoField(Field),
    /// It is longer than [`MAX_LINE`](super::MAX_LINE).
    TooLong,
}

impl Unreadable {
    /// The format that was tried.
    #[must_use]
    pub const fn tried(self) -> &'static str {
        match self {
            Self::NoTime | Self::NoRequest | Self::BadTime | Self::TooLong => "the combined log format",
            Self::NoJson | Self::NoField(_) => "JSON lines",
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTime => f.write_str("it has no time in brackets, such as [10/Oct/2000:13:55:36 -0700]"),
            Self::NoRequest => f.write_str("it has no request in quotes, such as \"GET / HTTP/1.1\""),
            Self::BadTime => f.write_str(
                "its time is neither like 10/Oct/2000:13:55:36 -0700, nor RFC 3339, nor a number since 1970",
            ),
            Self::NoJson => f.write_str("it begins with a brace and is not an object in JSON"),
            Self::NoField(field) => {
                let name = field.name();
                write!(f, "it has no known field for the {name}; name it with --field {name}=FIELD")
            }
            Self::TooLong => write!(f, "it is longer than {} bytes", super::MAX_LINE),
        }
    }
}

/// A request's first line without its target: the method, and where the target is.
pub(super) fn request_line(line: &str) -> Option<(&str, &str)> {
    let (method, rest) = line.split_once(' ')?;
    // A target with a space in it is not valid, but servers log it.
    let target =
        rest.rsplit_once(' ').filter(|(_, version)| version.starts_with("HTTP/")).map_or(rest, |(target, _)| target);
    let is_method = !method.is_empty()
        && method.len() <= 64
        && method.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_method && !target.is_empty()).then_some((method, target))
}

/// The host, if it is in a target, and the path.
pub(super) fn target<'a>(text: Cow<'a, str>) -> (Option<Cow<'a, str>>, Cow<'a, str>) {
    if text.starts_with('/') {
        return (None, text);
    }
    let parts = text.split_once("://").map(|(_, rest)| rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())));
    match parts {
        Some((host, path)) => (Some(host.to_string().into()), path.to_string().into()),
        None => (None, text),
    }
}

/// The address in `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:443` or `fe80::1%eth0`.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim_ascii();
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    inner.split('%').next()?.parse().ok()
}

/// A value, unless a log writes it as absent.
pub(super) fn present(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    Some(text).filter(|text| !text.is_empty() && *text != "-")
}
