//! Paths in the form that rules compare: without what servers treat as the same path.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A path in a form that is equal for equivalent paths (RFC 3986, section 6.2.2): characters that need no percent-encoding
/// are decoded, escapes are in upper case, and `.` and `..` are resolved. A backslash counts as a slash, as in browsers and
/// WHATWG URLs. An escaped slash stays as it is, because it is not a separator.
///
/// [`segments`] ignores repeated slashes and one at the end. Otherwise a client could evade the rule of a path by writing it in
/// another way.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let is_plain = |bytes: &[u8]| {
        let dots = bytes.windows(2).any(|pair| pair == b"/." || pair == b"\\.");
        !dots && !bytes.iter().any(|byte| matches!(byte, b'%' | b'\\'))
    };
    if is_plain(path.as_bytes()) { Cow::Borrowed(path) } else { Cow::Owned(resolved(&decoded(path))) }
}

/// The segments of a normal path. Empty ones are left out.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    path.split('/').filter(|segment| !segment.is_empty())
}

/// Encodes what a path cannot contain unencoded, as a client would.
pub(super) fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'?' | b'`') => out.push(char::from(byte)),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

/// Decodes the escapes of unreserved characters, and writes the others in upper case.
fn decoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(place) = rest.find(['%', '\\']) {
        let (before, from) = rest.split_at(place);
        out.push_str(before);
        let digits = from.get(1..3).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let escape = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escape {
            _ if from.starts_with('\\') => out.push('/'),
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => out.push(char::from(byte)),
            Some(byte) => _ = write!(out, "%{byte:02X}"),
            None => out.push('%'),
        }
        // A backslash and a percent sign without digits are one byte long.
        rest = &from[if from.starts_with('%') && escape.is_some() { 3 } else { 1 }..];
    }
    out.push_str(rest);
    out
}

/// Resolves `.` and `..`.
fn resolved(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for segment in segments(path) {
        match segment {
            "." => {}
            ".." => out.truncate(out.rfind('/').unwrap_or_default()),
            _ => {
                out.push('/');
                out.push_str(segment);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{encoded, normal, segments};

    #[test]
    fn equivalent_paths_have_the_same_segments() {
        let same = [
            "/api/login",
            "/api/login/",
            "//api///login",
            "/api/./login",
            "/api/x/../login",
            "/../api/login",
            "/%61pi/l%6Fgin",
            "/%61pi/l%6fgin?next=/",
            "/api\\login",
            "/x/%2e%2E/api/login#top",
            "api/login",
        ];
        for path in same {
            let path = normal(path);
            assert_eq!(segments(&path).collect::<Vec<_>>(), ["api", "login"], "{path}");
        }
    }

    #[test]
    fn other_escapes_stay_in_upper_case() {
        for (path, expected) in [
            ("/a%2fb", "/a%2Fb"),
            ("/%c3%a9", "/%C3%A9"),
            ("/%", "/%"),
            ("/%4", "/%4"),
            ("/%zz/%41", "/%zz/A"),
            ("/é%2e", "/é."),
            ("/%é", "/%é"),
            ("/a%+1", "/a%+1"),
        ] {
            assert_eq!(normal(path), expected);
        }
        assert_eq!(encoded("/é <{id}>"), "/%C3%A9%20%3C{id}%3E");
    }
}
