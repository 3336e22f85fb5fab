//! Paths in the form that rules compare: without what servers treat as the same path.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The most segments of a rule's path.
pub(super) const SEGMENTS_MAX: usize = 32;

/// The segments of a path that a reading keeps. No rule tells those behind apart: one sees whether its path ends, and whether a slash
/// comes last.
const KEPT: usize = SEGMENTS_MAX + 2;

/// A path in its normal form (RFC 3986, section 6.2.2): characters that need no percent-encoding are decoded, escapes are in
/// upper case, and `.` and `..` are resolved. A backslash counts as a slash, as in browsers and WHATWG URLs. Empty segments are
/// left out. An escaped slash stays as it is, because it is not a separator. Of a longer path than a rule can have, only the beginning
/// is kept.
pub(super) fn normal(path: &str) -> Cow<'_, str> {
    if is_normal(path) {
        return Cow::Borrowed(path);
    }
    let mut out = String::with_capacity(path.len() + 1);
    Reading::ALL.write(&parts(without_query(path), true), &mut out);
    Cow::Owned(out)
}

/// Calls `found` with the path as each server may read it, until it returns true: the normal form first, the path as it arrived
/// last. At most 24 readings, and one for a path that is already normal.
pub(super) fn readings(path: &str, found: &mut dyn FnMut(&str) -> bool) {
    if is_normal(path) {
        found(path);
        return;
    }
    let path = without_query(path);
    let all = Reading::needed(path);
    // A client chooses how long the path is, so it is taken apart once, and not for each reading.
    let (one, other) = (parts(path, false), if all & BACKSLASHES == 0 { Vec::new() } else { parts(path, true) });
    let mut reading = String::with_capacity(path.len() + 1);
    // All subsets, the largest first.
    let mut steps = all;
    loop {
        let has = |step| steps & step != 0;
        if has(DOTS) || !has(ESCAPED_DOTS) {
            Reading(steps).write(if has(BACKSLASHES) { &other } else { &one }, &mut reading);
            if found(&reading) {
                return;
            }
        }
        if steps == 0 {
            return;
        }
        steps = (steps - 1) & all;
    }
}

/// A path without the difference between upper and lower case, for hosts that route so.
pub(super) fn in_lower_case(path: &str) -> Cow<'_, str> {
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) { path.to_ascii_lowercase().into() } else { path.into() }
}

/// The segments of a path. A slash at the end is followed by an empty one.
pub(super) fn segments(path: &str) -> impl Iterator<Item = &str> + Clone {
    let path = path.strip_prefix('/').unwrap_or(path);
    Segments(Some(path).filter(|path| !path.is_empty()))
}

/// What is left of a path. Segments are short, so that a plain loop finds their end sooner than `str::split` does.
#[derive(Clone)]
struct Segments<'p>(Option<&'p str>);

impl<'p> Iterator for Segments<'p> {
    type Item = &'p str;

    fn next(&mut self) -> Option<&'p str> {
        let path = self.0?;
        let end = path.bytes().position(|byte| byte == b'/');
        self.0 = end.map(|end| &path[end + 1..]);
        Some(&path[..end.unwrap_or(path.len())])
    }
}

/// Whether all servers read a path alike. It may be false for one that they do.
fn is_normal(path: &str) -> bool {
    // These do not stop at what they find, so the compiler makes vector instructions of them.
    let has_any = |found, byte: &u8| found | matches!(byte, b'%' | b'\\' | b'?' | b'#');
    let has_pair = |found, (byte, next): (&u8, &u8)| found | (*byte == b'/' && matches!(next, b'.' | b'/'));
    let bytes = path.as_bytes();
    !bytes.iter().fold(false, has_any)
        && !bytes.iter().zip(&bytes[bytes.len().min(1)..]).fold(false, has_pair)
        && (path.len() == 1 || !path.ends_with('/'))
}

fn without_query(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap_or_default()
}

/// What a server does with a path before it compares it: a set of the steps below.
#[derive(Clone, Copy)]
struct Reading(u8);

/// Takes a backslash for a slash.
const BACKSLASHES: u8 = 1;
/// Leaves out empty segments.
const MERGE: u8 = 2;
/// Takes escaped dots for dots. Only with [`DOTS`].
const ESCAPED_DOTS: u8 = 4;
/// Resolves `.` and `..`.
const DOTS: u8 = 8;
/// Decodes the escapes of characters that need none, and writes the others in upper case.
const DECODE: u8 = 16;

impl Reading {
    const ALL: Self = Self(BACKSLASHES | MERGE | ESCAPED_DOTS | DOTS | DECODE);

    /// The steps that may change a path.
    fn needed(path: &str) -> u8 {
        let mut steps = 0;
        if path.contains('\\') {
            steps |= BACKSLASHES;
        }
        if path.contains('%') {
            steps |= DECODE;
        }
        let separator = ['/', '\\'];
        let rest = path.strip_prefix(separator).unwrap_or(path);
        for segment in rest.split(separator) {
            if segment.is_empty() && !rest.is_empty() {
                steps |= MERGE;
            } else if let Some((_, is_escaped)) = dots(segment) {
                // What remains in front of dots may be empty, and so may what remains after them.
                steps |= DOTS | MERGE | if is_escaped { ESCAPED_DOTS } else { 0 };
            }
        }
        steps
    }

    const fn does(self, step: u8) -> bool {
        self.0 & step != 0
    }

    /// Writes the first segments of the path after these steps.
    fn write(self, parts: &[Part<'_>], out: &mut String) {
        out.clear();
        // How many segments there are. Only the first are written.
        let mut count = 0;
        let add = |text: &str, count: &mut usize, out: &mut String| {
            if *count < KEPT {
                out.push('/');
                out.push_str(text);
            }
            *count += 1;
        };
        for (place, part) in parts.iter().enumerate() {
            match part.dots.filter(|(_, is_escaped)| self.does(DOTS) && (!is_escaped || self.does(ESCAPED_DOTS))) {
                Some((dots, _)) => {
                    if dots == 2 && count > 0 {
                        count -= 1;
                        if count < KEPT {
                            out.truncate(out.rfind('/').unwrap_or_default());
                        }
                    }
                    // Dots at the end leave a slash there.
                    if place + 1 == parts.len() && !self.does(MERGE) {
                        add("", &mut count, out);
                    }
                }
                None if part.text.is_empty() && self.does(MERGE) => {}
                None => add(if self.does(DECODE) { &part.decoded } else { part.text }, &mut count, out),
            }
        }
    }
}

/// A segment of a path as it arrived.
struct Part<'a> {
    text: &'a str,
    /// The text without escapes that are not needed.
    decoded: Cow<'a, str>,
    dots: Option<(u8, bool)>,
}

/// The segments of a path, without the first separator.
fn parts(path: &str, takes_backslashes: bool) -> Vec<Part<'_>> {
    let is_separator = |letter| letter == '/' || (letter == '\\' && takes_backslashes);
    let part = |text| Part { text, decoded: decoded(text), dots: dots(text) };
    let path = path.strip_prefix(is_separator).unwrap_or(path);
    let mut parts = Vec::with_capacity(1 + path.bytes().filter(|byte| matches!(byte, b'/' | b'\\')).count());
    parts.extend(path.split(is_separator).map(part));
    parts
}

/// How many dots a segment is, if it is one or two, and whether one is escaped.
fn dots(segment: &str) -> Option<(u8, bool)> {
    let (mut rest, mut count, mut is_escaped) = (segment.as_bytes(), 0, false);
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'.', after) => after,
            (b'%', [b'2', b'e' | b'E', after @ ..]) => {
                is_escaped = true;
                after
            }
            _ => return None,
        };
        count += 1;
        if count > 2 {
            return None;
        }
    }
    (count > 0).then_some((count, is_escaped))
}

/// Whether a path can contain a byte unencoded.
const fn stays_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'?' | b'`')
}

/// Encodes what a path cannot contain unencoded, as a client would.
pub(super) fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            _ if stays_plain(byte) => out.push(char::from(byte)),
            _ => _ = write!(out, "%{byte:02X}"),
        }
    }
    out
}

/// A segment without the escapes of characters that need none, and with the others in upper case. Some routers decode fewer, and match
/// a path as it arrived.
fn decoded(segment: &str) -> Cow<'_, str> {
    if !segment.contains('%') {
        return Cow::Borrowed(segment);
    }
    let mut out = String::with_capacity(segment.len());
    let mut parts = segment.split('%');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let byte = part.split_at_checked(2).and_then(|(digits, rest)| Some((escaped(digits.as_bytes())?, rest)));
        match byte {
            Some((byte, rest)) if stays_plain(byte) && !b"/\\%".contains(&byte) => {
                out.push(char::from(byte));
                out.push_str(rest);
            }
            Some((byte, rest)) => {
                out.push('%');
                out.extend([byte >> 4, byte & 0xf].map(|digit| char::from(HEX[usize::from(digit)])));
                out.push_str(rest);
            }
            // What is not an escape is copied as it is.
            None => {
                out.push('%');
                out.push_str(part);
            }
        }
    }
    Cow::Owned(out)
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// The byte that two digits stand for.
fn escaped(digits: &[u8]) -> Option<u8> {
    let [high, low] = [0, 1].map(|place| char::from(digits[place]).to_digit(16));
    u8::try_from(high? << 4 | low?).ok()
}

#[cfg(test)]
mod tests {
    use super::{KEPT, encoded, normal, readings, segments};

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

    fn all(path: &str) -> Vec<String> {
        let mut found = Vec::new();
        readings(path, &mut |path| {
            found.push(path.to_string());
            false
        });
        found
    }

    #[test]
    fn each_step_may_be_left_out() {
        assert_eq!(all("/a/b"), ["/a/b"]);
        assert_eq!(all("/.well-known/x?y"), ["/.well-known/x"]);
        assert_eq!(all("/"), ["/"]);
        assert_eq!(all("/a/"), ["/a", "/a/"]);
        assert_eq!(all("/a\\b"), ["/a/b", "/a\\b"]);
        assert_eq!(all("/l%6fgin"), ["/login", "/l%6fgin"]);
        for (path, expected) in [
            ("/files/..//x/y", ["/x/y", "//x/y", "/files/../x/y", "/files/..//x/y"].as_slice()),
            // A WHATWG URL resolves dots and keeps empty segments.
            ("/a//../b", &["/b", "/a/b", "/a//../b"]),
            ("/a/%2e%2e/l%6fgin", &["/login", "/l%6fgin", "/a/%2e%2e/l%6fgin", "/a/../login"]),
            ("/api/.", &["/api", "/api/", "/api/."]),
        ] {
            let found = all(path);
            assert_eq!(found[0], expected[0]);
            assert!(expected.iter().all(|reading| found.iter().any(|known| known == reading)), "{path}: {found:?}");
        }
        assert_eq!(all("/a\\..//%2e/b%20?").len(), 24);
    }

    #[test]
    fn of_a_long_path_the_beginning_is_kept() {
        let long = "/a".repeat(40);
        let kept = "/a".repeat(KEPT);
        assert_eq!(all(&long), [&*long], "nothing is to be done");
        assert_eq!(normal(&(long.clone() + "/")), kept);
        // What is behind still counts: here it leads back to the first segments.
        assert_eq!(normal(&(long.clone() + &"/..".repeat(39))), "/a");
        assert_eq!(normal(&(long.clone() + &"/..".repeat(8) + "/b")), "/a".repeat(32) + "/b");
        assert_eq!(normal(&(long + &"/..".repeat(50) + "/b/./c")), "/b/c");
    }

    #[test]
    fn other_escapes_stay_in_upper_case() {
        for (path, expected) in [
            ("/a%2fb", "/a%2Fb"),
            ("/it%27s%28%21%29", "/it's(!)"),
            ("/%40me%5C%22", "/@me%5C%22"),
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
