//! Paths as regular expressions, of the syntax that PCRE, RE2, Rust and JavaScript share.

use std::fmt::Write as _;

use tidegate_core::gate::Path;

/// Matches paths in another spelling than the normal one: repeated slashes, backslashes, dot segments, and escapes that are in
/// lower case or stand for an unreserved character (RFC 3986, section 6.2.2).
///
/// Tidegate resolves these, and a platform may not. What it would take for another path is left to Tidegate.
pub(super) const OTHER_SPELLING: &str =
    r"//|\\|/\.\.?(/|\?|$)|%([a-f][0-9A-Fa-f]|[0-9A-F][a-f]|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])";

/// Whether a path is for all requests.
pub(super) fn is_any(path: &Path) -> bool {
    path.is_prefix && path.segments.is_empty()
}

/// Whether a path has no segment of any text.
pub(super) fn is_literal(path: &Path) -> bool {
    path.segments.iter().all(Option::is_some)
}

/// A path without segments of any text, such as `/api`. That of the root is empty.
pub(super) fn literal(path: &Path) -> String {
    path.segments.iter().flatten().fold(String::new(), |text, segment| text + "/" + segment)
}

/// A regular expression that matches the start of normal paths, up to the end of the path or a query.
pub(super) fn regex(path: &Path) -> String {
    match (path.is_prefix, path.segments.is_empty()) {
        (true, true) => "^/".into(),
        (false, true) => r"^/(\?|$)".into(),
        (true, false) => begin(path) + r"(/|\?|$)",
        (false, false) => begin(path) + r"/?(\?|$)",
    }
}

/// A regular expression that matches whole normal paths, which have no query.
pub(super) fn whole_regex(path: &Path) -> String {
    match (path.is_prefix, path.segments.is_empty()) {
        (true, true) => "^/.*$".into(),
        (false, true) => "^/$".into(),
        (true, false) => begin(path) + "(/.*)?$",
        (false, false) => begin(path) + "/?$",
    }
}

fn begin(path: &Path) -> String {
    let mut text = String::from("^");
    for segment in &path.segments {
        text.push('/');
        match segment {
            Some(segment) => text.push_str(&escaped(segment)),
            None => text.push_str("[^/?]+"),
        }
    }
    text
}

/// A text that a regular expression matches as it is.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '.' | '*' | '+' | '?' | '^' | '$' | '(' | ')' | '[' | ']' | '{' | '}' | '|' => {
                out.extend(['\\', character])
            }
            // Quotes and controls would end the literal of some languages.
            '"' | '\'' | '\0'..='\u{1f}' | '\u{7f}' => _ = write!(out, "\\x{:02x}", u32::from(character)),
            other => out.push(other),
        }
    }
    out
}
