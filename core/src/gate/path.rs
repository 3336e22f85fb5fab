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
    // These do not stop at what they find, so the compiler makes vector instructions of them.
    let has_any = |found, byte: &u8| found | matches!(byte, b'%' | b'\\' | b'?' | b'#');
    let has_dots = |found, (byte, next): (&u8, &u8)| found | (*byte == b'/' && *next == b'.');
    let bytes = path.as_bytes();
    if bytes.iter().fold(false, has_any) || bytes.iter().zip(&bytes[bytes.len().min(1)..]).fold(false, has_dots) {
        return Cow::Owned(resolved(path.split(['?', '#']).next().unwrap_or_default()));
    }
    Cow::Borrowed(path)
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

/// Resolves `.` and `..`, and decodes the escapes of unreserved characters.
fn resolved(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = String::with_capacity(path.len() + 1);
    let mut at = 0;
    while at < bytes.len() {
        let start = out.len();
        out.push('/');
        at = segment(path, at, &mut out);
        match &out[start + 1..] {
            // An empty segment is left out, too.
            "" | "." => out.truncate(start),
            ".." => out.truncate(out[..start].rfind('/').unwrap_or_default()),
            _ => {}
        }
    }
    out
}

/// Writes the segment that starts at `at` without the escapes of unreserved characters, and with the others in upper case.
/// Returns where the next segment starts.
fn segment(path: &str, mut at: usize, out: &mut String) -> usize {
    let bytes = path.as_bytes();
    // What is not an escape is copied as it is.
    let mut plain = at;
    loop {
        match bytes.get(at) {
            Some(b'%') => {
                if let Some(byte) = bytes.get(at + 1..at + 3).and_then(escaped) {
                    out.push_str(&path[plain..at]);
                    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                        out.push(char::from(byte));
                    } else {
                        out.push('%');
                        out.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX[usize::from(digit)])));
                    }
                    at += 3;
                    plain = at;
                } else {
                    at += 1;
                }
            }
            Some(b'/' | b'\\') | None => {
                out.push_str(&path[plain..at]);
                return at + 1;
            }
            Some(_) => at += 1,
        }
    }
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The byte that two digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let [high, low] = [0, 1].map(|place| char::from(digits[place]).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
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
            ("/%25%32%65", "/%252e"),
            ("/a/..%2Fb", "/a/..%2Fb"),
            ("/%é", "/%é"),
            ("/a%+1", "/a%+1"),
        ] {
            assert_eq!(normal(path), expected);
        }
        assert_eq!(encoded("/é <{id}>"), "/%C3%A9%20%3C{id}%3E");
    }
}
